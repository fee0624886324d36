/* tests/unit/test_seed.c -- the hash seed: kept, given, never silently another. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "actors/common/seed.h"

static char dir[] = "/tmp/pointsman-seed-XXXXXX";
static int folder = -1;
static const char *why = "";

static void
begin(void)
{
	cr_assert_not_null(mkdtemp(dir));
	folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(folder, 0);
}

static void
end(void)
{
	unlinkat(folder, PM_SEED_FILE, 0);
	unlinkat(folder, PM_SEED_FILE ".new", 0);
	unlinkat(folder, "link", 0);
	close(folder);
	rmdir(dir);
}

static void
put(const char *text, mode_t mode)
{
	int fd = openat(folder, PM_SEED_FILE, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	cr_assert_eq(fchmod(fd, mode), 0);
	close(fd);
}

Test(seed, is_made_once_and_read_ever_after, .init = begin, .fini = end)
{
	uint64_t first = 0, again = 0;
	struct stat st;

	cr_assert_eq(pm_seed_keep(folder, &first, &why), 1, "%s", why);
	cr_assert_eq(pm_seed_keep(folder, &again, &why), 0, "%s", why);
	cr_assert_eq(first, again);
	cr_assert_eq(fstatat(folder, PM_SEED_FILE, &st, 0), 0);
	cr_assert_eq(st.st_mode & 07777, 0600);
	cr_assert_eq(st.st_size, 17);
}

Test(seed, half_a_file_of_one_who_died_is_no_obstacle, .init = begin, .fini = end)
{
	uint64_t seed = 0;
	int fd = openat(folder, PM_SEED_FILE ".new", O_WRONLY | O_CREAT, 0600);

	cr_assert_eq(write(fd, "12", 2), 2);
	close(fd);
	cr_assert_eq(pm_seed_keep(folder, &seed, &why), 1, "%s", why);
	cr_assert_neq(faccessat(folder, PM_SEED_FILE ".new", F_OK, 0), 0);
}

Test(seed, a_file_that_is_not_as_it_should_be_is_an_error_and_stays, .init = begin, .fini = end)
{
	static const char good[] = "00000000000000a7\n";
	static const struct {
		const char *text, *why;
		mode_t mode;
		int r;
	} wrong[] = {
		{"", "16 hexadecimal digits", 0600, -EINVAL},
		{"00000000000000a", "16 hexadecimal digits", 0600, -EINVAL},
		{"00000000000000a7\n\n", "16 hexadecimal digits", 0600, -EINVAL},
		{"00000000000000x7\n", "16 hexadecimal digits", 0600, -EINVAL},
		{good, "open to others", 0640, -EPERM},
		{good, "open to others", 0604, -EPERM},
	};
	uint64_t seed = 99;

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct stat st;

		put(wrong[i].text, wrong[i].mode);
		cr_assert_eq(pm_seed_keep(folder, &seed, &why), wrong[i].r, "%zu", i);
		cr_assert_not_null(strstr(why, wrong[i].why), "%zu: %s", i, why);
		cr_assert_eq(fstatat(folder, PM_SEED_FILE, &st, 0), 0);
		cr_assert_eq(st.st_size, (off_t)strlen(wrong[i].text), "it is left alone");
	}
	cr_assert_eq(seed, 99);
	put(good, 0600);
	cr_assert_eq(pm_seed_keep(folder, &seed, &why), 0, "%s", why);
	cr_assert_eq(seed, 0xa7);
	if (geteuid() == 0) {
		cr_assert_eq(fchownat(folder, PM_SEED_FILE, 1, (gid_t)-1, 0), 0);
		cr_assert_eq(pm_seed_keep(folder, &seed, &why), -EPERM);
		cr_assert_not_null(strstr(why, "another user"));
	}
}

Test(seed, a_link_in_the_run_directory_is_not_followed, .init = begin, .fini = end)
{
	uint64_t seed;

	cr_assert_eq(symlinkat("/dev/zero", folder, PM_SEED_FILE), 0);
	cr_assert_lt(pm_seed_keep(folder, &seed, &why), 0);
}

Test(seed, is_given_as_digits_or_as_a_file, .init = begin, .fini = end)
{
	char path[80];
	uint64_t seed = 0;

	cr_assert_eq(pm_seed_given("00000000000000B7", &seed, &why), 0);
	cr_assert_eq(seed, 0xb7);
	put("00000000000000a7", 0644);          /* as secrets are mounted */
	cr_assert_eq(symlinkat(PM_SEED_FILE, folder, "link"), 0);
	snprintf(path, sizeof path, "%s/link", dir);
	cr_assert_eq(pm_seed_given(path, &seed, &why), 0, "%s", why);
	cr_assert_eq(seed, 0xa7);
	put("00000000000000a7", 0664);
	cr_assert_eq(pm_seed_given(path, &seed, &why), -EPERM);
	cr_assert_eq(pm_seed_given(dir, &seed, &why), -EPERM);
	cr_assert_eq(pm_seed_given("a7", &seed, &why), -ENOENT);
}
