/* Goal: every file comes whole, once, with what is known of it; by paths and by descriptors; in memory and streamed. */
#include "check.h"
#include <sys/xattr.h>

enum { FILES = 40 };

static const size_t SIZES[] = {0, 1, 4095, 4096, 4097, 20000, 300000};

static size_t size_of(int number)
{
    return SIZES[(size_t)number % (sizeof SIZES / sizeof *SIZES)];
}

struct seen {
    pthread_mutex_t lock;
    int times[FILES];
    int others;
    const char *begins;
    size_t streamed_over;
};

static int look(void *user, onesweep_file *file)
{
    struct seen *seen = user;
    CHECK(!onesweep_file_failure(file));
    const onesweep_stat *stat = onesweep_file_stat(file);
    CHECK(stat && stat->kind == ONESWEEP_KIND_FILE && S_ISREG(stat->mode));
    CHECK(strncmp(onesweep_file_path(file), seen->begins, strlen(seen->begins)) == 0);
    CHECK(strcmp(onesweep_file_open_path(file), onesweep_file_path(file)) == 0);
    CHECK(onesweep_file_flags(file) == 0 && !onesweep_file_linked_to(file) && !onesweep_file_link_target(file));
    int number = atoi(name_of(file) + 1);
    size_t expected = size_of(number);
    CHECK(stat->size == expected && stat->nlink == 1 && stat->uid == geteuid() && stat->mtime.nanoseconds < 1000000000);

    size_t size = 7, got = 7;
    const void *data = onesweep_file_data(file, &size);
    if (expected > seen->streamed_over) {
        CHECK(!data && size == 0);
        CHECK(onesweep_file_route(file) == ONESWEEP_ROUTE_STREAMED);
        onesweep_buffer *none = (onesweep_buffer *)&size;
        GIVES(ONESWEEP_ERROR_NO_CONTENT, onesweep_file_take(file, &none));
        CHECK(!none);
    } else {
        CHECK(data && size == expected);
        CHECK(same_bytes(data, size, 0, (unsigned)number));
        CHECK(onesweep_file_route(file) != ONESWEEP_ROUTE_STREAMED);
        CHECK(onesweep_file_data(file, NULL) == data);
    }
    /* Any part of it, from wherever it is. */
    unsigned char part[5000];
    for (size_t offset = 0; offset <= expected + 1; offset += expected / 3 + 1) {
        OK(onesweep_file_pread(file, part, sizeof part, offset, &got));
        size_t left = offset < expected ? expected - offset : 0;
        CHECK(got == (left < sizeof part ? left : sizeof part));
        CHECK(same_bytes(part, got, offset, (unsigned)number));
    }
    OK(onesweep_file_pread(file, NULL, 0, 0, &got));
    GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_file_pread(file, part, SIZE_MAX, 0, &got));
    CHECK(got == 0);
    CHECK(got == 0);
    /* All of it is data. */
    if (expected > 0) {
        uint64_t start = 7, end = 7;
        CHECK(onesweep_file_range_count(file) == 1);
        OK(onesweep_file_range(file, 0, &start, &end));
        CHECK(start == 0 && end >= expected);
        GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_file_range(file, 1, &start, &end));
    }
    pthread_mutex_lock(&seen->lock);
    seen->times[number]++;
    pthread_mutex_unlock(&seen->lock);
    return ONESWEEP_CONTINUE;
}

static void check_all_once(struct seen *seen, const onesweep_counts *counts)
{
    uint64_t bytes = 0;
    for (int number = 0; number < FILES; number++) {
        CHECK(seen->times[number] == 1);
        bytes += size_of(number);
    }
    CHECK(counts->files == FILES && counts->bytes == bytes && counts->errors == 0 && !counts->cancelled);
    for (size_t at = 0; at < sizeof counts->reserved / sizeof *counts->reserved; at++)
        CHECK(counts->reserved[at] == 0);
    memset(seen->times, 0, sizeof seen->times);
}

static int look_at_odd(void *user, onesweep_file *file)
{
    int *found = user;
    const onesweep_stat *stat = onesweep_file_stat(file);
    CHECK(stat);
    const char *name = name_of(file);
    if (stat->kind == ONESWEEP_KIND_SYMLINK) {
        CHECK(strcmp(onesweep_file_link_target(file), "to nowhere") == 0);
        found[0]++;
    } else if (stat->kind == ONESWEEP_KIND_FIFO) {
        onesweep_buffer *buffer;
        size_t got;
        char byte;
        GIVES(ONESWEEP_ERROR_NO_CONTENT, onesweep_file_pread(file, &byte, 1, 0, &got));
        GIVES(ONESWEEP_ERROR_NO_CONTENT, onesweep_file_take(file, &buffer));
        found[1]++;
    } else if (stat->kind == ONESWEEP_KIND_DIRECTORY) {
        found[onesweep_file_flags(file) & ONESWEEP_FILE_CLOSING ? 3 : 2]++;
    } else if (strcmp(name, "one") == 0 || strcmp(name, "two") == 0) {
        CHECK(stat->nlink == 2 && onesweep_file_link_count(file) == 1);
        const char *other = strrchr(onesweep_file_link(file, 0), '/') + 1;
        CHECK(strcmp(other, name[0] == 'o' ? "two" : "one") == 0);
        CHECK(!onesweep_file_link(file, 1));
        onesweep_xattr xattr;
        CHECK(onesweep_file_xattr_count(file) == 1);
        OK(onesweep_file_xattr(file, 0, &xattr));
        CHECK(strcmp(xattr.name, "user.colour") == 0 && xattr.size == 4 && memcmp(xattr.value, "blue", 4) == 0);
        GIVES(ONESWEEP_ERROR_ARGUMENT, onesweep_file_xattr(file, 1, &xattr));
        found[4]++;
    } else if (strcmp(name, "sparse") == 0) {
        size_t size;
        const unsigned char *data = onesweep_file_data(file, &size);
        CHECK(data && size == 1 << 20 && data[0] == 0 && data[500000] == 'x');
        uint64_t start, end;
        CHECK(onesweep_file_range_count(file) == 1);
        OK(onesweep_file_range(file, 0, &start, &end));
        CHECK(start > 0 && start <= 500000 && end > 500000 && end < 1 << 20);
        found[5]++;
    } else {
        CHECK(!"an entry of that name");
    }
    return ONESWEEP_CONTINUE;
}

static int look_at_names(void *user, onesweep_file *file)
{
    size_t size = 7, got;
    char byte;
    CHECK(onesweep_file_stat(file) && !onesweep_file_data(file, &size) && size == 0);
    if (onesweep_file_stat(file)->kind == ONESWEEP_KIND_FILE)
        GIVES(ONESWEEP_ERROR_NO_CONTENT, onesweep_file_pread(file, &byte, 1, 0, &got));
    ++*(int *)user;
    return ONESWEEP_CONTINUE;
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    const char *top = argv[1], *tree = in(top, "tree");
    CHECK(mkdir(tree, 0755) == 0 && mkdir(in(tree, "a"), 0755) == 0 && mkdir(in(tree, "a/b"), 0755) == 0);
    for (int number = 0; number < FILES; number++) {
        char name[32];
        snprintf(name, sizeof name, "%sf%d", number % 3 == 0 ? "" : number % 3 == 1 ? "a/" : "a/b/", number);
        make_file(in(tree, name), size_of(number), (unsigned)number);
    }

    struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER, .begins = tree, .streamed_over = SIZE_MAX};
    onesweep_counts counts;
    const char *paths[] = {tree};
    OK(onesweep_bulk_read(paths, 1, NULL, look, &seen, &counts));
    check_all_once(&seen, &counts);

    /* One after the other in a list. */
    char several[FILES][PATH_MAX];
    const char *list[FILES];
    for (int number = 0; number < FILES; number++) {
        const char *below = number % 3 == 0 ? "" : number % 3 == 1 ? "a/" : "a/b/";
        snprintf(several[number], PATH_MAX, "%s/%sf%d", tree, below, number);
        list[number] = several[number];
    }
    OK(onesweep_bulk_read(list, FILES, NULL, look, &seen, &counts));
    check_all_once(&seen, &counts);

    /* All orders, streams, a small budget, several threads; options serve many calls. */
    onesweep_options *options = onesweep_options_new();
    CHECK(options);
    OK(onesweep_options_set_budget(options, 1 << 20));
    OK(onesweep_options_set_large(options, 16384));
    seen.streamed_over = 16384;
    for (uint32_t order = ONESWEEP_ORDER_AUTO; order <= ONESWEEP_ORDER_DIRECTORY; order++) {
        OK(onesweep_options_set_order(options, order));
        OK(onesweep_options_set_threads(options, 1 + order % 3));
        OK(onesweep_bulk_read(paths, 1, options, look, &seen, &counts));
        check_all_once(&seen, &counts);
        CHECK(counts.streamed_files > 0 && counts.peak_budget <= 1 << 20);
    }

    /* By descriptors: of a directory that has another name by now, and of a file. */
    int fds[] = {open(tree, O_RDONLY | O_DIRECTORY), open(in(top, "single"), O_RDWR | O_CREAT, 0644)};
    CHECK(fds[0] >= 0 && fds[1] >= 0);
    CHECK(write(fds[1], "single", 6) == 6);
    CHECK(rename(tree, in(top, "moved")) == 0);
    char begins[64];
    snprintf(begins, sizeof begins, "/proc/self/fd/%d/", fds[0]);
    seen.begins = begins;
    OK(onesweep_bulk_read_fd(fds, 1, options, look, &seen, &counts));
    check_all_once(&seen, &counts);
    int names = 0;
    OK(onesweep_walk_fd(fds, 2, NULL, look_at_names, &names, &counts));
    CHECK(names == FILES + 1 && counts.files == FILES + 1 && counts.bytes_read == 0);
    int files = 0;
    OK(onesweep_bulk_read_fd(&fds[1], 1, NULL, count_files, &files, NULL));
    CHECK(files == 1);
    /* They are still the caller's. */
    CHECK(fcntl(fds[0], F_GETFD) >= 0 && close(fds[0]) == 0 && close(fds[1]) == 0);

    /* Everything else that a tree can have. */
    const char *odd = in(top, "odd");
    CHECK(mkdir(odd, 0755) == 0 && symlink("to nowhere", in(odd, "symlink")) == 0 && mkfifo(in(odd, "fifo"), 0644) == 0);
    make_file(in(odd, "one"), 10, 1);
    CHECK(link(in(odd, "one"), in(odd, "two")) == 0 && setxattr(in(odd, "one"), "user.colour", "blue", 4, 0) == 0);
    int sparse = open(in(odd, "sparse"), O_WRONLY | O_CREAT, 0644);
    CHECK(sparse >= 0 && ftruncate(sparse, 1 << 20) == 0 && pwrite(sparse, "x", 1, 500000) == 1 && close(sparse) == 0);
    OK(onesweep_options_set_large(options, 1 << 20));
    OK(onesweep_options_set_budget(options, 8 << 20));
    OK(onesweep_options_set_threads(options, 1));
    OK(onesweep_options_set_order(options, ONESWEEP_ORDER_AUTO));
    OK(onesweep_options_set_flags(options, ONESWEEP_XATTRS));
    OK(onesweep_options_set_entries(options, ONESWEEP_ENTRIES_ALL));
    int found[6] = {0};
    const char *odd_paths[] = {odd};
    OK(onesweep_bulk_read(odd_paths, 1, options, look_at_odd, found, &counts));
    for (size_t at = 0; at < 6; at++)
        CHECK(found[at] == 1);
    names = 0;
    OK(onesweep_walk(odd_paths, 1, options, look_at_names, &names, &counts));
    /* symlink, fifo, one with two names, sparse, the directory at its beginning and end */
    CHECK(names == 6 && counts.files == 2);

    /* What is left out, and where relative paths begin. */
    OK(onesweep_options_add_exclude(options, "*/spar?e"));
    OK(onesweep_options_set_entries(options, ONESWEEP_ENTRIES_FILES));
    OK(onesweep_options_set_base(options, top));
    OK(onesweep_options_set_logdev(options, "/nowhere"));
    OK(onesweep_options_set_rtdev(options, "/nowhere"));
    const char *relative[] = {"odd"};
    names = 0;
    OK(onesweep_walk(relative, 1, options, look_at_names, &names, NULL));
    CHECK(names == 1);
    onesweep_options_free(options);
    return 0;
}
