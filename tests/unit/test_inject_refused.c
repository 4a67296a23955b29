/* Processes that cannot be held, and what is said of them. */
#include "tracee.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void vfork_body(struct tracee *t)
{
	t->shared->slot[0].tid = t->pid;
	if (vfork() == 0) {
		while (!t->shared->go)
			;
		_exit(0);
	}
	t->shared->slot[0].done = 1;
	while (t->shared->go != 2)
		;
}

/* A parent in vfork(2) waits killably and does not stop for a tracer: the deadline must end the wait. */
static void test_deadline(void **state)
{
	struct sys s = real_sys(100);
	cleanup_error struct error err = { 0 };
	struct tracee t;
	struct held *h = NULL;

	(void) state;
	tracee_start(&t, vfork_body);
	for (int i = 0; thread_state(t.pid, t.pid) != 'D'; i++) {
		assert_true(i < TRACEE_PATIENCE);
		short_pause();
	}
	assert_int_equal(held_open(&s, t.pid, &h, &err), -ETIMEDOUT);
	assert_non_null(strstr(error_text(&err), "did not stop"));
	t.shared->go = 1;
	tracee_end(&t);
	sys_done(&s);
}

/*
 * Becomes a 32-bit program (elf(5)) that loops. Its image is built here since nothing promises a compiler for those; it
 * is executed, and not jumped to, since qemu's emulation (7.2) ends the guest at a far return into 32-bit code.
 */
static void compat_body(struct tracee *t)
{
	const uint32_t base = 0x08048000;
	struct {
		Elf32_Ehdr head;
		Elf32_Phdr segment;
		unsigned char code[2];
	} image = {
		.head = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS32, ELFDATA2LSB, EV_CURRENT },
			  .e_type = ET_EXEC, .e_machine = EM_386, .e_version = EV_CURRENT,
			  .e_entry = base + offsetof(typeof(image), code),
			  .e_phoff = offsetof(typeof(image), segment),
			  .e_ehsize = sizeof(Elf32_Ehdr), .e_phentsize = sizeof(Elf32_Phdr), .e_phnum = 1 },
		.segment = { .p_type = PT_LOAD, .p_vaddr = base, .p_filesz = sizeof(image), .p_memsz = sizeof(image),
			     .p_flags = PF_R | PF_X, .p_align = 4096 },
		.code = { 0xeb, 0xfe }, /* jmp . */
	};
	char *const argv[] = { (char[]) { "compat" }, NULL }, *const envp[] = { NULL };
	int fd = memfd_create("compat", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, &image, sizeof(image)) == (ssize_t) sizeof(image))
		fexecve(fd, argv, envp);
	t->shared->slot[0].done = 1;
	_exit(1);
}

/* Its /proc/PID/exe names the image from when the kernel has taken it. */
static bool runs_image(pid_t pid)
{
	cleanup_free char *link = NULL;
	char target[64];
	ssize_t n;

	assert_true(asprintf(&link, "/proc/%d/exe", (int) pid) > 0);
	n = readlink(link, target, sizeof(target));
	return n > 0 && memmem(target, (size_t) n, "memfd:compat", strlen("memfd:compat"));
}

static void test_compat_process(void **state)
{
	struct sys s = real_sys(60000);
	cleanup_error struct error err = { 0 };
	struct tracee t;
	struct held *h = NULL;

	(void) state;
	if (!has_int80()) {
		print_message("needs CONFIG_IA32_EMULATION\n");
		sys_done(&s);
		skip();
	}
	tracee_start(&t, compat_body);
	for (int i = 0; !runs_image(t.pid); i++) {
		assert_int_equal(t.shared->slot[0].done, 0);
		assert_true(i < TRACEE_PATIENCE);
		short_pause();
	}
	assert_int_equal(held_open(&s, t.pid, &h, &err), -ENOTSUP);
	assert_non_null(strstr(error_text(&err), "32-bit"));
	tracee_end(&t);
	sys_done(&s);
}

/* ---- a call of ours that does not come back ---- */

/* In its child by vfork(2), which has our registers, read(2) seems to have returned 0. */
static void reading_body(struct tracee *t)
{
	const pid_t self = getpid();
	ssize_t n;
	char c;

	t->shared->slot[0].tid = t->pid;
	n = read(t->from_parent, &c, 1);
	while (n == 0 && getppid() == self)
		short_pause();
	if (getpid() != self)
		_exit(0);
	t->shared->value = n;
	t->shared->slot[0].done = 1;
	while (t->shared->go == 0)
		short_pause();
}

static void hold_reader(struct sys *s, struct tracee *t, struct held **ret_held)
{
	tracee_start(t, reading_body);
	tracee_wait_parked(t, 1);
	assert_int_equal(held_open(s, t->pid, ret_held, NULL), 0);
}

/* It can be interrupted, so the process gets its registers back when it is let go. */
static void test_late_call_is_taken_back(void **state)
{
	const unsigned long args[6] = { 0 };
	struct sys s = real_sys(100);
	struct tracee t;
	struct held *h = NULL;
	long result = 0;

	(void) state;
	hold_reader(&s, &t, &h);
	assert_int_equal(held_call(h, 0, SYS_pause, args, &result), -ETIMEDOUT);
	assert_int_equal(held_close(h), 0);
	assert_int_equal(write(t.to_child, "x", 1), 1);
	wait_for(&t.shared->slot[0].done, 1);
	assert_int_equal(t.shared->value, 1);
	t.shared->go = 1;
	tracee_end(&t);
	sys_done(&s);
}

/* It cannot, and whoever waits for the process must not be told that all is well. */
static void test_lost_call_is_told(void **state)
{
	const unsigned long args[6] = { 0 };
	struct sys s = real_sys(100);
	struct tracee t;
	struct held *h = NULL;
	long result = 0;

	(void) state;
	hold_reader(&s, &t, &h);
	assert_int_equal(held_call(h, 0, SYS_vfork, args, &result), -ETIMEDOUT);
	assert_int_equal(held_close(h), -ENOTRECOVERABLE);
	tracee_end(&t);
	sys_done(&s);
}

static void test_gone_and_foreign(void **state)
{
	struct sys s = real_sys(60000), foreign;
	struct held *h = NULL;
	pid_t pid = fork();

	(void) state;
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	assert_int_equal(held_open(&s, pid, &h, NULL), -ESRCH);
	assert_int_equal(sys_open("/tmp", &foreign, NULL), 0);
	assert_int_equal(held_open(&foreign, getpid(), &h, NULL), -EROFS);
	sys_done(&foreign);
	sys_done(&s);
}

/* The linker puts this in its place. */
int __real_sys_left_ms(const struct sys *s);
int __wrap_sys_left_ms(const struct sys *s);
static bool time_is_up;

int __wrap_sys_left_ms(const struct sys *s)
{
	return time_is_up ? 0 : __real_sys_left_ms(s);
}

static void asleep(struct tracee *t)
{
	while (!t->shared->go)
		short_pause();
}

/* A process that does nothing must not be said to start threads. */
static void test_time_runs_out(void **state)
{
	cleanup_error struct error err = { 0 };
	struct sys s = real_sys(0);
	struct held *h = NULL;
	struct tracee t;

	(void) state;
	s.deadline_ns = 0;
	tracee_start(&t, asleep);
	time_is_up = true;
	assert_int_equal(held_open(&s, t.pid, &h, &err), -ETIMEDOUT);
	time_is_up = false;
	assert_null(h);
	assert_non_null(strstr(error_text(&err), "time ran out while the threads of process"));
	tracee_end(&t);
	sys_done(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_time_runs_out),
		cmocka_unit_test(test_compat_process),
		cmocka_unit_test(test_late_call_is_taken_back),
		cmocka_unit_test(test_lost_call_is_told),
		cmocka_unit_test(test_gone_and_foreign),
	};

	return cmocka_run_group_tests_name("inject_refused", tests, NULL, NULL);
}
