#include "utf8.h"

size_t utf8_sequence(const char *text, size_t left)
{
	const unsigned char *s = (const unsigned char *) text;
	unsigned char low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
	unsigned char high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
	size_t n = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf5 ? 4 : 0;

	if (n > left || (n > 1 && (s[1] < low || s[1] > high)))
		return 0;
	for (size_t i = 2; i < n; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	}
	return n;
}

uint32_t utf8_code(const char *text, size_t n)
{
	const unsigned char *s = (const unsigned char *) text;
	uint32_t code = n == 1 ? s[0] : s[0] & (0x7fu >> n);

	for (size_t i = 1; i < n; i++)
		code = code << 6 | (s[i] & 0x3f);
	return code;
}

bool utf8_hidden(uint32_t code)
{
	/* Unicode 15, ascending. */
	static const struct {
		uint32_t first, last;
	} ranges[] = {
		{ 0x00a0, 0x00a0 },   { 0x00ad, 0x00ad },   { 0x034f, 0x034f },   { 0x0600, 0x0605 },
		{ 0x061c, 0x061c },   { 0x06dd, 0x06dd },   { 0x070f, 0x070f },   { 0x0890, 0x0891 },
		{ 0x08e2, 0x08e2 },   { 0x115f, 0x1160 },   { 0x1680, 0x1680 },   { 0x17b4, 0x17b5 },
		{ 0x180b, 0x180f },   { 0x2000, 0x200f },   { 0x2028, 0x202f },   { 0x205f, 0x206f },
		{ 0x2800, 0x2800 },   { 0x3000, 0x3000 },   { 0x3164, 0x3164 },   { 0xfe00, 0xfe0f },
		{ 0xfeff, 0xfeff },   { 0xffa0, 0xffa0 },   { 0xfff0, 0xfffb },   { 0x110bd, 0x110bd },
		{ 0x110cd, 0x110cd }, { 0x13430, 0x1343f }, { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },
		{ 0xe0000, 0xe0fff },
	};

	for (size_t i = 0; i < ARRAY_LEN(ranges) && code >= ranges[i].first; i++)
		if (code <= ranges[i].last)
			return true;
	return false;
}

bool utf8_find_hidden(const char *text, size_t len, uint32_t *ret_code)
{
	size_t n;

	for (size_t i = 0; i < len; i += n ? n : 1) {
		n = utf8_sequence(text + i, len - i);
		if (n < 2 || !utf8_hidden(utf8_code(text + i, n)))
			continue;
		*ret_code = utf8_code(text + i, n);
		return true;
	}
	return false;
}

size_t utf8_valid(const char *text, size_t len)
{
	size_t i = 0;

	while (i < len) {
		uint64_t eight;
		size_t n;

		if (len - i >= sizeof(eight)) {
			memcpy(&eight, text + i, sizeof(eight));
			if (!(eight & UINT64_C(0x8080808080808080))) {
				i += sizeof(eight);
				continue;
			}
		}
		n = utf8_sequence(text + i, len - i);
		if (!n)
			break;
		i += n;
	}
	return i;
}
