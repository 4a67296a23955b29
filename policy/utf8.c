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
