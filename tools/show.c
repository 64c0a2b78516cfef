/* Tables and JSON. */
#include "tools/show.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"

#define CELL 96

static bool is_number(const json_t *v)
{
        return json_is_integer(v) || json_is_real(v);
}

static void format_scaled(char *cell, double v, double base)
{
        static const char units[] = "KMGT";
        int u = -1;

        while (v >= base && u < 3) {
                v /= base;
                u++;
        }
        if (u < 0)
                snprintf(cell, CELL, "%.0f", v);
        else
                snprintf(cell, CELL, v < 10 ? "%.1f%c" : "%.0f%c", v, units[u]);
}

static void format_us(char *cell, double ns)
{
        snprintf(cell, CELL, ns < 100000 ? "%.1f" : "%.0f", ns / 1000);
}

/* It may come from another user: nothing that a terminal acts on. */
static void format_text(char *cell, const char *text)
{
        snprintf(cell, CELL, "%s", text);
        for (; *cell; cell++)
                if ((unsigned char)*cell < ' ' || *cell == 127)
                        *cell = '?';
}

static void format_cell(char *cell, const json_t *v, enum show_as as)
{
        if (is_number(v) && (as == SHOW_BYTES || as == SHOW_COUNT))
                format_scaled(cell, json_number_value(v), as == SHOW_BYTES ? 1024 : 1000);
        else if (is_number(v) && as == SHOW_PERCENT)
                snprintf(cell, CELL, "%.0f%%", json_number_value(v) * 100);
        else if (is_number(v) && as == SHOW_US)
                format_us(cell, json_number_value(v));
        else if (json_is_integer(v))
                snprintf(cell, CELL, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        else if (json_is_real(v))
                snprintf(cell, CELL, "%.3g", json_real_value(v));
        else if (json_is_string(v))
                format_text(cell, json_string_value(v));
        else if (json_is_boolean(v))
                snprintf(cell, CELL, "%s", json_is_true(v) ? "yes" : "no");
        else
                snprintf(cell, CELL, "-");
}

/* The last column is not padded; a column holds numbers or text throughout. */
static void print_cell(FILE *out, const char *cell, int width, bool right, bool last)
{
        if (right)
                fprintf(out, "%*s%s", width, cell, last ? "\n" : "  ");
        else if (last)
                fprintf(out, "%s\n", cell);
        else
                fprintf(out, "%-*s  ", width, cell);
}

static void measure(json_t *rows, const struct show_column *col, int *width, bool *right)
{
        json_t *row;
        size_t i;

        *width = (int)strlen(col->head);
        *right = false;
        json_array_foreach (rows, i, row) {
                const json_t *v = json_object_get(row, col->key);
                char cell[CELL];

                format_cell(cell, v, col->as);
                *width = MAX(*width, (int)strlen(cell));
                *right = *right || is_number(v);
        }
}

void show_rows_to(FILE *out, json_t *rows, const struct show_column *cols, size_t n)
{
        int width[32];
        bool right[32];
        json_t *row;
        size_t i;

        assert(n <= ARRAY_LEN(width));
        for (size_t c = 0; c < n; c++) {
                measure(rows, &cols[c], &width[c], &right[c]);
                print_cell(out, cols[c].head, width[c], right[c], c + 1 == n);
        }
        json_array_foreach (rows, i, row) {
                for (size_t c = 0; c < n; c++) {
                        char cell[CELL];

                        format_cell(cell, json_object_get(row, cols[c].key), cols[c].as);
                        print_cell(out, cell, width[c], right[c], c + 1 == n);
                }
        }
}

static bool json_shown;

void show_json(json_t *value)
{
        json_dumpf(value, stdout, JSON_INDENT(1));
        putchar('\n');
        json_decref(value);
        json_shown = true;
}

bool show_json_shown(void)
{
        return json_shown;
}

void show_rows(json_t *rows, const struct show_column *cols, size_t n, bool as_json)
{
        if (as_json) {
                show_json(rows);
                return;
        }
        if (json_array_size(rows) > 0)
                show_rows_to(stdout, rows, cols, n);
        json_decref(rows);
}

json_t *show_string(const char *text)
{
        json_t *whole = json_string(text);

        return whole ? whole : show_text(text, strlen(text));
}

json_t *show_text(const char *text, size_t max)
{
        char safe[256];
        size_t n = 0;

        for (; n < max && n < sizeof safe - 1 && text[n]; n++)
                safe[n] = text[n] >= ' ' && text[n] < 127 ? text[n] : '?';
        safe[n] = '\0';
        return json_string(safe);
}

json_t *show_numbers(const uint64_t *n, int count)
{
        json_t *a = json_array();

        for (int i = 0; i < count; i++)
                json_array_append_new(a, json_integer((json_int_t)n[i]));
        return a;
}
