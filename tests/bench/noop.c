/* The least a C hook can do: what cotenant-hook is measured against. Reads its stdin, as the runtime expects. */
#include <unistd.h>

int main(void)
{
	char buffer[4096];

	while (read(STDIN_FILENO, buffer, sizeof(buffer)) > 0)
		;
	return 0;
}
