/* tokens.c - text to the tokens of a published model, and back. */
#include "drivers/tokens/tokens.h"

#include "drivers/common/commands.h"

#define FIELD(name) offsetof(struct tokens_config, name)

const struct sl_option tokens_tokenizer_table[] = {
    {"tokenizer", SL_OPTION_TEXT, FIELD(tokenizer), .value = "PATH", .path = SL_PATH_DATA,
     .help = "a tokenizer.json, a folder that has one, a GGUF file, a model of SentencePiece, or tiktoken's ranks"},
    {"pattern", SL_OPTION_TEXT, FIELD(pattern), .value = "NAME",
     .help = "how text is divided into words, which ranks do not say: gpt2, llama3, qwen2 or smollm (default: as PATH "
             "says)"},
    {0},
};

const struct sl_option tokens_text_table[] = {
    {"lines", SL_OPTION_FLAG, FIELD(lines), .help = "each line is a text of its own; otherwise all of stdin is one"},
    {0},
};

static const struct sl_option special_table[] = {
    {"special", SL_OPTION_SWITCH, FIELD(special),
     .help = "what is spelled as a special token, such as <|endoftext|>, is one; otherwise it is text like other text"},
    {0},
};

static int start(const struct tokens_config *config, bool decodes, struct sl_error *error) {
    struct sl_tokenizer *tokenizer;
    if (!config->tokenizer) return sl_error_set(error, SL_BAD_INPUT, "no tokenizer: name one by --tokenizer PATH");
    SL_TRY(sl_tokenizer_open(&tokenizer, config->tokenizer, config->pattern, error));
    const int status = (decodes ? tokens_decode : tokens_encode)(config, tokenizer, stdin, stdout, error);
    sl_tokenizer_close(tokenizer);
    return status;
}

static int run(const struct sl_command *command, const char *program, int argc, char **argv) {
    const bool decodes = command->name[0] == 'd';
    struct tokens_config config = {.special = true};
    struct sl_options options = {
        .program = program,
        .summary = command->summary,
        .section = SL_SECTIONS({"Tokenizer", tokens_tokenizer_table, &config}, {"Text", tokens_text_table, &config},
                               {decodes ? NULL : "Special tokens", decodes ? NULL : special_table, &config})};
    struct sl_error error = {0};
    int status = sl_options_parse(&options, argc, argv);
    if (status == SL_OK && !options.answered) {
        status = start(&config, decodes, &error);
        status = sl_options_finish(&options, status, &error);
    }
    sl_options_free(&options);
    return status;
}

static const struct sl_command commands[] = {
    {"encode", "tokens encode", "Reads a text from stdin and prints the numbers of its tokens.", run},
    {"decode", "tokens decode", "Reads the numbers of tokens from stdin and prints their text.", run},
    {0},
};

int main(int argc, char **argv) { return sl_commands_main("tokens", commands, argc, argv); }
