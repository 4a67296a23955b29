/* UTF-8 by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. */
#pragma once

#include "base.h"

/* Length of the sequence at the front of a text that is not empty, or 0 when it is none. */
size_t utf8_sequence(const char *text, size_t left);
/* How many bytes at the front are valid: `len` when all are. */
size_t utf8_valid(const char *text, size_t len);
