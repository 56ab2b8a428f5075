/* shard_draw.c - draws the blocks of an array, and each block's coordinates. */
#include "spmd/shard_draw.h"

#include <string.h>

#include "spmd/base/svg.h"

enum {
    MOST_PIECES = 64, /* most rows, and columns, of a drawing with segments */
    LABEL = 256,      /* bytes for a block's coordinates, with commas */
    LINE = 24,        /* characters per line of a label */
    BAND = 100,       /* characters per line of text; wider drawings are split into bands */
    HEADING = 80,     /* characters of a heading; longer ones are cut */
    TITLE = 700,
    MARGIN = 16, /* pixels around an SVG */
};

/* ---- the coordinates of each block ---- */

/* Returns the number of shards of DIM; *INDEX receives the index of COORDINATE's shard. */
static int shards_of(const struct sl_sharding *sharding, int dim, int coordinate, int *index) {
    int count = 1;
    *index = 0;
    if (dim >= sharding->spec->dims) return count;
    const struct sl_spec_dim *entry = &sharding->spec->dim[dim];
    for (int a = 0; a < entry->axes; a++) {
        const int axis = sl_mesh_find_axis(sharding->mesh, entry->axis[a]), size = sharding->mesh->axis[axis].size;
        count *= size;
        *index = *index * size + sl_mesh_index(sharding->mesh, coordinate, axis);
    }
    return count;
}

static int count_shards(const struct sl_sharding *sharding, int dim) {
    int index;
    return shards_of(sharding, dim, 0, &index);
}

int sl_sharding_segments(const struct sl_sharding *sharding, int dim) {
    return dim < sharding->spec->dims && count_shards(sharding, dim) > 1 ? sharding->spec->dim[dim].segments : 1;
}

/* The elements [*BEGIN, *END) of piece number PIECE of DIM; pieces are numbered segment by segment. */
static void find_piece(const struct sl_sharding *sharding, int dim, int piece, size_t *begin, size_t *end) {
    const int pieces = count_shards(sharding, dim) * sl_sharding_segments(sharding, dim);
    const size_t size = sharding->shape[dim] / (size_t)pieces;
    *begin = (size_t)piece * size;
    *end = *begin + size;
}

void sl_sharding_slice(const struct sl_sharding *sharding, int coordinate, int dim, int segment, size_t *begin,
                       size_t *end) {
    int index;
    const int count = shards_of(sharding, dim, coordinate, &index);
    find_piece(sharding, dim, segment * count + index, begin, end);
}

/* ---- the grid of blocks ---- */

struct grid {
    const struct sl_sharding *of;
    bool folded; /* all segments' pieces of a shard are drawn as one block */
    int rows, columns;
    int characters, lines; /* of the largest label */
    int row_heading, column_heading;
};

static int pieces_of(const struct grid *grid, int dim) {
    return count_shards(grid->of, dim) * (grid->folded ? 1 : sl_sharding_segments(grid->of, dim));
}

/* Writes to PIECE the piece number of each dim for the block at ROW and COLUMN. */
static void locate(const struct grid *grid, int row, int column, int *piece) {
    for (int d = grid->of->dims - 1; d >= 0; d--) {
        const bool last = d == grid->of->dims - 1;
        const int pieces = pieces_of(grid, d);
        piece[d] = last ? column : row % pieces;
        if (!last) row /= pieces;
    }
}

/* Whether COORDINATE holds the block made of PIECE. */
static bool holds(const struct sl_sharding *sharding, int coordinate, const int *piece) {
    for (int d = 0; d < sharding->dims; d++) {
        int index;
        const int count = shards_of(sharding, d, coordinate, &index);
        if (piece[d] % count != index) return false;
    }
    return true;
}

/* Writes the coordinates of a block, "0,2,4", into LABEL, with line breaks after full lines; returns the lowest
 * coordinate. */
static int write_label(const struct grid *grid, int row, int column, char label[LABEL]) {
    int piece[SL_MAX_DIMS] = {0}, first = -1;
    size_t used = 0, line = 0;
    label[0] = 0;
    locate(grid, row, column, piece);
    for (int coordinate = 0; coordinate < grid->of->mesh->size; coordinate++) {
        if (!holds(grid->of, coordinate, piece)) continue;
        const char *before = first < 0 ? "" : ",";
        if (used - line > LINE - 4) {
            before = ",\n";
            line = used + 2;
        }
        if (first < 0) first = coordinate;
        used += (size_t)snprintf(label + used, LABEL - used, "%s%d", before, coordinate);
    }
    return first;
}

/* Writes the slices of dims FROM to TO - 1, "0:4, 8:16"; for a folded dim, its first piece and the number of others. */
static void write_heading(const struct grid *grid, const int *piece, int from, int to, char heading[HEADING]) {
    size_t used = 0;
    heading[0] = 0;
    for (int d = from; d < to && used < HEADING; d++) {
        size_t begin, end;
        const int more = grid->folded ? sl_sharding_segments(grid->of, d) - 1 : 0;
        find_piece(grid->of, d, piece[d], &begin, &end);
        used += (size_t)snprintf(heading + used, HEADING - used, "%s%zu:%zu", d > from ? ", " : "", begin, end);
        if (more && used < HEADING) used += (size_t)snprintf(heading + used, HEADING - used, " and %d more", more);
    }
}

static void write_row_heading(const struct grid *grid, int row, char heading[HEADING]) {
    int piece[SL_MAX_DIMS];
    locate(grid, row, 0, piece);
    write_heading(grid, piece, 0, grid->of->dims - 1, heading);
}

static void write_column_heading(const struct grid *grid, int column, char heading[HEADING]) {
    int piece[SL_MAX_DIMS];
    locate(grid, 0, column, piece);
    write_heading(grid, piece, grid->of->dims ? grid->of->dims - 1 : 0, grid->of->dims, heading);
}

static void grow(int *size, size_t needed) {
    if (*size < (int)needed) *size = (int)needed;
}

static void measure_label(struct grid *grid, const char *label) {
    int lines = 0;
    for (const char *line = label;; line++) {
        const size_t length = strcspn(line, "\n");
        grow(&grid->characters, length);
        grow(&grid->lines, (size_t)++lines);
        line += length;
        if (!*line) break;
    }
}

static void count_blocks(struct grid *grid) {
    grid->rows = grid->columns = 1;
    for (int d = 0; d < grid->of->dims; d++) {
        int *along = d == grid->of->dims - 1 ? &grid->columns : &grid->rows;
        *along = *along > MOST_PIECES ? *along : *along * pieces_of(grid, d);
    }
}

static struct grid make_grid(const struct sl_sharding *sharding) {
    struct grid grid = {.of = sharding};
    char label[LABEL], heading[HEADING];
    count_blocks(&grid);
    grid.folded = grid.rows > MOST_PIECES || grid.columns > MOST_PIECES;
    count_blocks(&grid);
    for (int row = 0; row < grid.rows; row++) {
        write_row_heading(&grid, row, heading);
        grow(&grid.row_heading, strlen(heading));
        for (int column = 0; column < grid.columns; column++) {
            write_label(&grid, row, column, label);
            measure_label(&grid, label);
        }
    }
    for (int column = 0; column < grid.columns; column++) {
        write_column_heading(&grid, column, heading);
        grow(&grid.column_heading, strlen(heading));
    }
    return grid;
}

char *sl_shape_print(int dims, const size_t *shape, char *text, size_t size) {
    size_t used = 0;
    snprintf(text, size, "%s", dims ? "" : "scalar");
    for (int d = 0; d < dims && used < size; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%zu", d ? " x " : "", shape[d]);
    return text;
}

static void write_title(const struct sl_sharding *sharding, char title[TITLE]) {
    char shape[200], block[200], spec[200];
    size_t local[SL_MAX_DIMS];
    sl_spec_local_shape(sharding->spec, sharding->mesh, sharding->dims, sharding->shape, local, NULL);
    snprintf(title, TITLE, "%.80s: %s, spec %s; blocks of %s", sharding->name,
             sl_shape_print(sharding->dims, sharding->shape, shape, sizeof shape),
             *sl_spec_print(sharding->spec, spec, sizeof spec) ? spec : "-",
             sl_shape_print(sharding->dims, local, block, sizeof block));
}

/* ---- text ---- */

struct band {
    const struct grid *grid;
    int begin, end;    /* columns */
    int width, indent; /* characters of a block and before the first one */
    bool colours;
};

static void put_spaces(FILE *file, int count) { fprintf(file, "%*s", count > 0 ? count : 0, ""); }

/* Pads with spaces on the left, and on the right unless ENDS_LINE. */
static void put_centred(FILE *file, const char *text, size_t length, int width, bool ends_line) {
    const int room = width - (int)length;
    put_spaces(file, room / 2);
    fwrite(text, 1, length, file);
    if (!ends_line) put_spaces(file, room - room / 2);
}

static void put_rule(FILE *file, const struct band *band, const char *left, const char *middle, const char *right) {
    put_spaces(file, band->indent);
    for (int column = band->begin; column < band->end; column++) {
        fputs(column == band->begin ? left : middle, file);
        for (int i = 0; i < band->width; i++) fputs("─", file);
    }
    fprintf(file, "%s\n", right);
}

/* Returns line number LINE of LABEL, and its length: 0 after the last line. */
static const char *find_line(const char *label, int line, size_t *length) {
    for (; line > 0; line--) {
        label += strcspn(label, "\n");
        label += *label != 0;
    }
    *length = strcspn(label, "\n");
    return label;
}

static void put_blocks(FILE *file, const struct band *band, int row, int line) {
    char label[LABEL], heading[HEADING] = "";
    if (line == (band->grid->lines - 1) / 2) write_row_heading(band->grid, row, heading);
    fprintf(file, "%*s ", band->indent - 1, heading);
    for (int column = band->begin; column < band->end; column++) {
        size_t length;
        const int first = write_label(band->grid, row, column, label);
        const char *text = find_line(label, line, &length);
        fputs("│", file);
        if (band->colours) fprintf(file, "\033[30;48;5;%dm", sl_terminal_colour(first));
        put_centred(file, text, length, band->width, false);
        if (band->colours) fputs("\033[0m", file);
    }
    fputs("│\n", file);
}

static void put_headings(FILE *file, const struct band *band) {
    char heading[HEADING];
    put_spaces(file, band->indent);
    for (int column = band->begin; column < band->end; column++) {
        write_column_heading(band->grid, column, heading);
        fputc(' ', file);
        put_centred(file, heading, strlen(heading), band->width, column == band->end - 1);
    }
    fputc('\n', file);
}

static void put_band(FILE *file, const struct band *band) {
    if (band->grid->of->dims) put_headings(file, band);
    put_rule(file, band, "┌", "┬", "┐");
    for (int row = 0; row < band->grid->rows; row++) {
        if (row) put_rule(file, band, "├", "┼", "┤");
        for (int line = 0; line < band->grid->lines; line++) put_blocks(file, band, row, line);
    }
    put_rule(file, band, "└", "┴", "┘");
}

static void draw_text(FILE *file, const struct sl_sharding *sharding, bool colours) {
    char title[TITLE];
    const struct grid grid = make_grid(sharding);
    const int widest = grid.characters > grid.column_heading ? grid.characters : grid.column_heading;
    struct band band = {.grid = &grid, .width = widest + 2, .indent = grid.row_heading + 1, .colours = colours};
    const int fit = (BAND - band.indent - 1) / (band.width + 1);
    write_title(sharding, title);
    fprintf(file, "%s\n", title);
    for (band.begin = 0; band.begin < grid.columns; band.begin = band.end) {
        band.end = band.begin + (fit > 1 ? fit : 1);
        if (band.end > grid.columns) band.end = grid.columns;
        put_band(file, &band);
    }
}

/* ---- SVG ---- */

/* Pixels: of a block, of the space before the first block, and of the whole drawing. */
struct layout {
    double block, line, left, top, width, height;
};

static struct layout lay_out(const struct grid *grid, const char *title) {
    const int widest = grid->characters > grid->column_heading ? grid->characters : grid->column_heading;
    struct layout layout = {.block = SL_SVG_CHARACTER * (widest + 2),
                            .line = SL_SVG_LINE * (grid->lines + 1),
                            .left = MARGIN + SL_SVG_CHARACTER * (grid->row_heading + 1),
                            .top = 3 * SL_SVG_LINE};
    layout.width = layout.left + layout.block * grid->columns + MARGIN;
    const double title_width = 2 * MARGIN + SL_SVG_CHARACTER * (double)strlen(title);
    if (layout.width < title_width) layout.width = title_width;
    layout.height = layout.top + layout.line * grid->rows + MARGIN;
    return layout;
}

static void draw_label(FILE *file, const struct grid *grid, int row, int column, double x, double y) {
    char label[LABEL];
    write_label(grid, row, column, label);
    int lines = 0;
    for (const char *c = label; *c; c++) lines += *c == '\n';
    char *text = label;
    for (int line = 0; line <= lines; line++) {
        char *end = text + strcspn(text, "\n");
        *end = 0;
        sl_svg_text(file, x, y + SL_SVG_LINE * (line - lines / 2.0), SL_SVG_MIDDLE, text);
        text = end + 1;
    }
}

static void draw_svg(FILE *file, const struct sl_sharding *sharding, double y) {
    char heading[HEADING], title[TITLE], label[LABEL];
    const struct grid grid = make_grid(sharding);
    write_title(sharding, title);
    const struct layout layout = lay_out(&grid, title);
    sl_svg_text(file, MARGIN, y + SL_SVG_LINE, SL_SVG_START, title);
    for (int column = 0; column < grid.columns; column++) {
        write_column_heading(&grid, column, heading);
        sl_svg_text(file, layout.left + layout.block * (column + 0.5), y + 2.4 * SL_SVG_LINE, SL_SVG_MIDDLE, heading);
    }
    for (int row = 0; row < grid.rows; row++) {
        const double top = y + layout.top + layout.line * row, middle = top + layout.line / 2;
        write_row_heading(&grid, row, heading);
        sl_svg_text(file, layout.left - SL_SVG_CHARACTER, middle, SL_SVG_END, heading);
        for (int column = 0; column < grid.columns; column++) {
            const double left = layout.left + layout.block * column;
            const int first = write_label(&grid, row, column, label);
            sl_svg_box(file, left, top, layout.block, layout.line, sl_svg_colour(first));
            draw_label(file, &grid, row, column, left + layout.block / 2, middle);
        }
    }
}

static void draw_document(FILE *file, const struct sl_sharding *sharding, int count) {
    char title[TITLE];
    double width = 0, height = 0, y = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass) sl_svg_begin(file, width, height);
        for (int i = 0; i < count; i++) {
            const struct grid grid = make_grid(&sharding[i]);
            write_title(&sharding[i], title);
            const struct layout layout = lay_out(&grid, title);
            if (pass) draw_svg(file, &sharding[i], y);
            y += pass ? layout.height : 0;
            height += layout.height;
            width = width < layout.width ? layout.width : width;
        }
    }
    sl_svg_end(file);
}

int sl_sharding_draw(FILE *file, const struct sl_sharding *sharding, int count, enum sl_drawing drawing,
                     struct sl_error *error) {
    for (int i = 0; i < count; i++) {
        size_t local[SL_MAX_DIMS];
        struct sl_error reason;
        const struct sl_sharding *of = &sharding[i];
        if (sl_spec_local_shape(of->spec, of->mesh, of->dims, of->shape, local, &reason))
            return sl_error_set(error, SL_BAD_INPUT, "%.80s: %s", of->name, reason.message);
    }
    if (drawing == SL_DRAW_SVG) {
        draw_document(file, sharding, count);
        return SL_OK;
    }
    for (int i = 0; i < count; i++) {
        if (i) fputc('\n', file);
        draw_text(file, &sharding[i], drawing == SL_DRAW_COLOURS);
    }
    return SL_OK;
}
