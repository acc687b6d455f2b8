/* What the kernel's calls for small cached files cost by themselves: a bound for crates/python/bench/cached.py.

       calls least|swept ROOT

   Reads all files of a tree of directories and files in the order of their inodes, on the processor that it was given. `least`: openat,
   pread and close for each; `swept`: those that the sweep makes for a small file behind others that lay in memory. Prints files, bytes, seconds by the clock and
   seconds of the processor, listing the tree included. Names, content and attributes are thrown away. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct name {
    unsigned long inode;
    int directory;
    char *name;
};
static struct name *names;
static size_t count, room;
static char content[1 << 20];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static double seconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static void list(int at)
{
    DIR *listing = fdopendir(dup(at));
    if (!listing)
        fail("opendir");
    for (struct dirent *entry; (entry = readdir(listing));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (entry->d_type == DT_DIR) {
            int below = openat(at, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
            if (below < 0)
                fail(entry->d_name);
            list(below);
            continue;
        }
        if (count == room && !(names = realloc(names, (room = 2 * room + 1024) * sizeof *names)))
            fail("realloc");
        names[count++] = (struct name){entry->d_ino, at, strdup(entry->d_name)};
    }
    closedir(listing);
}

static int by_inode(const void *a, const void *b)
{
    const struct name *one = a, *two = b;
    return (one->inode > two->inode) - (one->inode < two->inode);
}

static long read_one(const struct name *name, int swept)
{
    int file = openat(name->directory, name->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC | O_NOATIME);
    if (file < 0)
        fail(name->name);
    long read;
    if (swept) {
        struct iovec parts[2] = {{content, 4096}, {content + 4096, 60 << 10}};
        struct statx stat;
        read = preadv2(file, parts, 2, 0, RWF_NOWAIT);
        if (read < 0)
            read = pread(file, content, sizeof content, 0);
        if (statx(file, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID | 0x2000 /* STATX_DIOALIGN */, &stat))
            fail("statx");
    } else {
        read = pread(file, content, sizeof content, 0);
    }
    if (read < 0)
        fail("read");
    close(file);
    return read;
}

int main(int args, char **arg)
{
    if (args != 3)
        return fprintf(stderr, "calls least|swept ROOT\n"), 1;
    double clock = seconds(CLOCK_MONOTONIC), processor = seconds(CLOCK_PROCESS_CPUTIME_ID);
    int root = open(arg[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (root < 0)
        fail(arg[2]);
    list(root);
    qsort(names, count, sizeof *names, by_inode);
    long bytes = 0;
    for (size_t at = 0; at < count; at++)
        bytes += read_one(&names[at], !strcmp(arg[1], "swept"));
    printf("%zu %ld %.9f %.9f\n", count, bytes, seconds(CLOCK_MONOTONIC) - clock, seconds(CLOCK_PROCESS_CPUTIME_ID) - processor);
}
