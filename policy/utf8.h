/* UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
#pragma once

#include "base.h"

/* Length of the sequence at the front of a text that is not empty, or 0 when it is none. */
size_t utf8_sequence(const char *text, size_t left);
/* The code point of a sequence of n bytes. */
uint32_t utf8_code(const char *text, size_t n);
/*
 * White space other than U+0020, and what does not show or changes how other characters do: with these two texts can
 * look alike and differ. Unicode's categories Zs, Zl, Zp and Cf, its Default_Ignorable_Code_Point, and the empty U+2800.
 */
bool utf8_hidden(uint32_t code);
/* The first of those in a text. */
bool utf8_find_hidden(const char *text, size_t len, uint32_t *ret_code);
/* How many bytes at the front are valid: `len` when all are. */
size_t utf8_valid(const char *text, size_t len);
