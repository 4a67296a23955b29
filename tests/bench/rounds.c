/*
 * rounds N NAME COMMAND ARG… [-- NAME COMMAND ARG…]…
 *
 * Runs the commands in turn, N times each, and prints for each the median wall time in microseconds and the median of
 * what it took more than the first command did in the same round. In turn, so that whatever else the machine does falls
 * on all of them alike.
 */
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

struct command {
	char *name, **argv;
	int64_t *times;
};

static int64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static int by_value(const void *a, const void *b)
{
	const int64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static int64_t run(const struct command *c)
{
	int64_t start = now_us();
	int status;
	pid_t pid;

	if (posix_spawnp(&pid, c->argv[0], NULL, NULL, c->argv, environ) != 0 || waitpid(pid, &status, 0) < 0 ||
	    !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fprintf(stderr, "rounds: %s failed\n", c->name);
		exit(1);
	}
	return now_us() - start;
}

static int64_t median(int64_t *values, int n)
{
	qsort(values, (size_t) n, sizeof(*values), by_value);
	return values[n / 2];
}

int main(int argc, char **argv)
{
	int rounds = argc > 3 ? atoi(argv[1]) : 0, n = 0;
	struct command *commands = calloc((size_t) argc, sizeof(*commands));
	int64_t *differences = calloc((size_t) (rounds > 0 ? rounds : 1), sizeof(*differences));

	if (rounds < 1 || !commands || !differences) {
		fputs("usage: rounds N NAME COMMAND ARG… [-- NAME COMMAND ARG…]…\n", stderr);
		return 2;
	}
	for (int i = 2; i + 1 < argc; i++) {
		commands[n] = (struct command){ argv[i], argv + i + 1, calloc((size_t) rounds, sizeof(int64_t)) };
		if (!commands[n++].times)
			return 1;
		while (i < argc && strcmp(argv[i], "--") != 0)
			i++;
		if (i < argc)
			argv[i] = NULL;
	}
	for (int i = 0; i < n; i++)
		run(&commands[i]); /* warms caches, this round does not count */
	for (int round = 0; round < rounds; round++)
		for (int k = 0; k < n; k++) {
			/* Forth and back: each leaves work behind (cgroups, namespaces) that the next one pays for. */
			int i = round % 2 ? n - 1 - k : k;

			commands[i].times[round] = run(&commands[i]);
		}
	for (int i = n - 1; i >= 0; i--) { /* the first one's times are needed to the last */
		int64_t more;

		for (int round = 0; round < rounds; round++)
			differences[round] = commands[i].times[round] - commands[0].times[round];
		more = median(differences, rounds);
		printf("%s %ld %ld\n", commands[i].name, (long) median(commands[i].times, rounds), (long) more);
		free(commands[i].times);
	}
	free(differences);
	free(commands);
	return 0;
}
