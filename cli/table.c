/* A table on a terminal. */
#include "cli.h"

#include <stdio.h>
#include <wchar.h>

void table_done(struct table *t)
{
	for (size_t i = 0; i < t->n; i++) {
		for (size_t c = 0; c < TABLE_COLUMNS; c++)
			free(t->rows[i].cell[c]);
		free(t->rows[i].note);
	}
	free(t->rows);
}

/* Columns of a terminal. The text is printable(): no control characters, and what is UTF-8 is whole. */
static size_t shown_width(const char *text)
{
	const char *end = text + strlen(text);
	mbstate_t state = { 0 };
	size_t width = 0;

	while (text < end) {
		wchar_t character = L'?';
		size_t n = mbrtowc(&character, text, (size_t) (end - text), &state);
		int columns;

		if (n == 0 || n > (size_t) (end - text)) {
			state = (mbstate_t){ 0 };
			character = L'?';
			n = 1;
		}
		columns = wcwidth(character);
		width += columns < 0 ? 1 : (size_t) columns;
		text += n;
	}
	return width;
}

static const char *cell_text(const struct row *row, size_t column)
{
	return row->cell[column] ? row->cell[column] : "?";
}

static void print_cell(const char *text, bool last, size_t width)
{
	if (last)
		puts(text);
	else
		printf("%s%*s", text, (int) (width - shown_width(text)) + 2, "");
}

void table_print(const char *const head[], const struct table *t)
{
	size_t width[TABLE_COLUMNS] = { 0 };

	for (size_t c = 0; c < t->columns; c++) {
		width[c] = shown_width(head[c]);
		for (size_t i = 0; i < t->n; i++) {
			size_t this = shown_width(cell_text(&t->rows[i], c));

			width[c] = this > width[c] ? this : width[c];
		}
	}
	for (size_t c = 0; c < t->columns; c++)
		print_cell(head[c], c + 1 == t->columns, width[c]);
	for (size_t i = 0; i < t->n; i++)
		for (size_t c = 0; c < t->columns; c++)
			print_cell(cell_text(&t->rows[i], c), c + 1 == t->columns, width[c]);
	for (size_t i = 0; i < t->n; i++)
		if (t->rows[i].note)
			printf("%s:%s%s\n", cell_text(&t->rows[i], 0), *t->rows[i].note == '\n' ? "" : " ",
			       t->rows[i].note);
}
