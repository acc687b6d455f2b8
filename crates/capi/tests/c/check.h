/* What the tests have in common. Each is a program of its own, with an empty directory to work in as its first argument. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <onesweep.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "%s:%d: not so: %s\n  last error: %s (errno %d)\n", __FILE__, __LINE__, #condition, \
                    onesweep_last_message(), onesweep_last_errno()); \
            _exit(1); \
        } \
    } while (0)

/* The call gives this code. */
#define GIVES(expected, call) \
    do { \
        onesweep_error code_ = (call); \
        if (code_ != (expected)) { \
            fprintf(stderr, "%s:%d: %s\n  gave %u (%s), not %s\n  last error: %s (errno %d)\n", __FILE__, __LINE__, #call, \
                    code_, onesweep_strerror(code_), #expected, onesweep_last_message(), onesweep_last_errno()); \
            _exit(1); \
        } \
    } while (0)

#define OK(call) GIVES(ONESWEEP_OK, call)

/* The path of a name in a directory, for as long as the program runs. */
static inline const char *in(const char *directory, const char *name)
{
    static char *paths[4096];
    static size_t next;
    CHECK(next < sizeof paths / sizeof *paths);
    CHECK(asprintf(&paths[next], "%s/%s", directory, name) > 0);
    return paths[next++];
}

/* A file whose bytes follow from its seed. */
static inline void make_file(const char *path, size_t size, unsigned seed)
{
    unsigned char *bytes = malloc(size + 1);
    CHECK(bytes);
    for (size_t at = 0; at < size; at++)
        bytes[at] = (unsigned char)(at * 31 + at / 4096 + seed);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0);
    CHECK(write(fd, bytes, size) == (ssize_t)size);
    CHECK(close(fd) == 0);
    free(bytes);
}

/* Whether these are the bytes of the file, from an offset on. */
static inline int same_bytes(const void *bytes, size_t size, size_t offset, unsigned seed)
{
    for (size_t at = 0; at < size; at++)
        if (((const unsigned char *)bytes)[at] != (unsigned char)((offset + at) * 31 + (offset + at) / 4096 + seed))
            return 0;
    return 1;
}

static inline const char *name_of(const onesweep_file *file)
{
    const char *path = onesweep_file_path(file);
    CHECK(path);
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* A callback that counts files, and takes no failure. */
static inline int count_files(void *user, onesweep_file *file)
{
    const onesweep_failure *failure = onesweep_file_failure(file);
    if (failure) {
        fprintf(stderr, "unexpected: %s\n", failure->text);
        _exit(1);
    }
    ++*(int *)user;
    return ONESWEEP_CONTINUE;
}
