/* tokens.c - converts text to tokens of a published model, and back: numbers, or shards for training. */
#include "drivers/tools/tokens/tokens.h"

#include "drivers/common/commands.h"

#define FIELD(name) offsetof(struct tokens_config, name)

static const struct sl_option tokenizer_table[] = {
    {"tokenizer", SL_OPTION_TEXT, FIELD(tokenizer), .value = "PATH", .path = SL_PATH_PUBLISHED,
     .help = "a tokenizer.json, a folder that has one, a GGUF file, a model of SentencePiece, or tiktoken's ranks"},
    {"pattern", SL_OPTION_TEXT, FIELD(pattern), .value = "NAME",
     .help = "the division of text into words, which files of ranks lack: gpt2, llama3, qwen2 or smollm (default: as "
             "in PATH)"},
    {0},
};

static const struct sl_option lines_table[] = {
    {"lines", SL_OPTION_FLAG, FIELD(lines), .help = "treat each line as a text; otherwise all of stdin is one text"},
    {0},
};

static const struct sl_option special_table[] = {
    {"special", SL_OPTION_SWITCH, FIELD(special),
     .help = "read the spelling of a special token, such as <|endoftext|>, as that token; otherwise as text"},
    {0},
};

static const struct sl_option documents_table[] = {
    {"data", SL_OPTION_TEXT, FIELD(data), .value = "PATH", .path = SL_PATH_DATA,
     .help = "a text, packed by gzip or zstd or not, or a directory of them: a document each; *.jsonl has one a line"},
    {"text-key", SL_OPTION_TEXT, FIELD(text_key), .value = "KEY", .help = "under which key of a line its text is"},
    {"document-token", SL_OPTION_INTEGER, FIELD(document_token), .min = -1, .max = 1 << 24,
     .help = "the token that stands before each document; -1: the one that ends a text, by the tokenizer"},
    {"save", SL_OPTION_TEXT, FIELD(save), .value = "DIR", .path = SL_PATH_SAVED,
     .help = "write shards of llm.c's format to DIR, in which there are none yet"},
    {"shard-tokens", SL_OPTION_INTEGER, FIELD(shard_tokens), .min = 1, .max = 1 << 30, .help = "tokens of a shard"},
    {"threads", SL_OPTION_INTEGER, FIELD(threads), .min = 0, .max = TOKENS_THREADS,
     .help = "threads that encode; 0: as many as there are cores"},
    {"json", SL_OPTION_FLAG, FIELD(json), .help = "print the result as a JSON object"},
    {0},
};

static const struct sl_option shards_table[] = {
    {"data", SL_OPTION_TEXT, FIELD(data), .value = "PATH", .path = SL_PATH_DATA,
     .help = "a shard, or a directory of them"},
    {"text-key", SL_OPTION_TEXT, FIELD(text_key), .value = "KEY", .read = "json",
     .help = "with --json: under which key of an object a text is"},
    {"document-token", SL_OPTION_INTEGER, FIELD(document_token), .min = -1, .max = 1 << 24,
     .help = "the token that stands before each document; -1: the one that ends a text, by the tokenizer"},
    {"json", SL_OPTION_FLAG, FIELD(json), .help = "print a document a line, as JSON objects"},
    {0},
};

/* Functions and options of commands, besides the tokenizer's options. */
static const struct {
    int (*work)(const struct tokens_config *config, const struct sl_tokenizer *tokenizer, struct sl_error *error);
    const char *title;
    const struct sl_option *options, *special;
} works[] = {
    {tokens_encode, "Text", lines_table, special_table},
    {tokens_decode, "Text", lines_table, NULL},
    {tokens_make_shards, "Documents", documents_table, special_table},
    {tokens_print_text, "Documents", shards_table, NULL},
};

static int run(const struct sl_command *command, const char *program, int argc, char **argv);

static const struct sl_command commands[] = {
    {"encode", "tokens encode", "Reads a text from stdin and prints the numbers of its tokens.", run},
    {"decode", "tokens decode", "Reads the numbers of tokens from stdin and prints their text.", run},
    {"shards", "tokens shards", "Writes the tokens of documents as shards of llm.c's format, to train on.", run},
    {"text", "tokens text", "Reads shards and prints the documents that they were made of.", run},
    {0},
};

static int start(const struct sl_command *command, const struct tokens_config *config, struct sl_error *error) {
    struct sl_tokenizer *tokenizer;
    if (!config->tokenizer) return sl_error_set(error, SL_BAD_INPUT, "no tokenizer: name one by --tokenizer PATH");
    SL_TRY(sl_tokenizer_open(&tokenizer, config->tokenizer, config->pattern, error));
    const int status = works[command - commands].work(config, tokenizer, error);
    sl_tokenizer_close(tokenizer);
    return status;
}

static int run(const struct sl_command *command, const char *program, int argc, char **argv) {
    const int number = (int)(command - commands);
    struct tokens_config config = {
        .special = true, .text_key = "text", .shard_tokens = 100000000, .document_token = -1};
    struct sl_options options = {.program = program,
                                 .summary = command->summary,
                                 .section = SL_SECTIONS({"Tokenizer", tokenizer_table, &config},
                                                        {works[number].title, works[number].options, &config},
                                                        {"Special tokens", works[number].special, &config})};
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        status = start(command, &config, &error);
        status = sl_options_finish(&options, status, &error);
    }
    sl_options_free(&options);
    return status;
}

int main(int argc, char **argv) { return sl_commands_main("tokens", commands, argc, argv); }
