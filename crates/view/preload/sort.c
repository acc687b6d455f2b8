/* Sorts what readdir(3) returns, for `onesweep run --sort`: a directory of the helper's file systems is read whole when its first
 * entry is wanted. What ONESWEEP_SORT doesn't ask for costs nothing but a look at a pointer.
 *
 * readdir(3) may allocate and lock, so this may, too; errno is kept. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ahead.h"

/* Elsewhere readdir(3) and readdir64(3) give different structures. */
#if defined __LP64__

typedef struct dirent64 dirent;

struct entry {
    dirent *is;
    /* Where its content begins on the device; zero for what has no address. */
    uint64_t address;
};

/* What a stream still gives. */
struct listing {
    DIR *stream;
    struct listing *next;
    pthread_mutex_t lock;
    int is_read;
    /* What reading ended with. */
    int error;
    struct entry *entries;
    size_t count, room, at;
};

enum { BUCKETS = 64 };

static pthread_mutex_t listings_lock = PTHREAD_MUTEX_INITIALIZER;
static struct listing *listings[BUCKETS];
static int (*compare)(const void *, const void *);
static int by_device;

static dirent *(*real_readdir)(DIR *);
static int (*real_closedir)(DIR *);
static void (*real_rewinddir)(DIR *);
static void (*real_seekdir)(DIR *, long);
static long (*real_telldir)(DIR *);

/* The directory itself and the one above come first. */
static int rank(const char *name)
{
    return strcmp(name, ".") == 0 ? 0 : strcmp(name, "..") == 0 ? 1 : 2;
}

static int numbers(uint64_t one, uint64_t other)
{
    return (one > other) - (one < other);
}

static int by_name(const void *one, const void *other)
{
    const dirent *left = ((const struct entry *)one)->is, *right = ((const struct entry *)other)->is;
    int ranks = rank(left->d_name) - rank(right->d_name);
    return ranks ? ranks : strcmp(left->d_name, right->d_name);
}

static int by_inode(const void *one, const void *other)
{
    const dirent *left = ((const struct entry *)one)->is, *right = ((const struct entry *)other)->is;
    int ranks = rank(left->d_name) - rank(right->d_name);
    return ranks ? ranks : numbers(left->d_ino, right->d_ino);
}

/* What has no address keeps the order of inode numbers, in front. */
static int by_address(const void *one, const void *other)
{
    const struct entry *left = one, *right = other;
    int ranks = rank(left->is->d_name) - rank(right->is->d_name);
    int places = numbers(left->address, right->address);
    return ranks ? ranks : places ? places : numbers(left->is->d_ino, right->is->d_ino);
}

/* pthread_atfork(3), which glibc has as this; musl has it by its name. */
extern int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak));
extern __typeof__(pthread_atfork) pthread_atfork __attribute__((weak));

static void hold(void)
{
    pthread_mutex_lock(&listings_lock);
}

static void let_go(void)
{
    pthread_mutex_unlock(&listings_lock);
}

/* A child that one thread forks while another one has the lock would never get it. */
static void keep_over_fork(void)
{
    if (__register_atfork)
        __register_atfork(hold, let_go, let_go, NULL);
    else if (pthread_atfork)
        pthread_atfork(hold, let_go, let_go);
}

__attribute__((constructor)) static void begin(void)
{
    const char *order = secure_getenv("ONESWEEP_SORT");
    if (!order)
        return;
    by_device = strcmp(order, "device") == 0;
    compare = by_device                        ? by_address
              : strcmp(order, "inode") == 0 ? by_inode
              : strcmp(order, "name") == 0  ? by_name
                                            : NULL;
    if (compare)
        keep_over_fork();
}

static uint64_t address_of(int directory, const dirent *entry)
{
    union {
        struct fiemap map;
        char room[sizeof(struct fiemap) + sizeof(struct fiemap_extent)];
    } map;
    if (entry->d_type != DT_REG)
        return 0;
    /* By the system call itself: it is no open of the program's that would be waited for. */
    int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int file = (int)syscall(SYS_openat, directory, entry->d_name, flags, 0);
    if (file < 0)
        return 0;
    memset(&map, 0, sizeof map);
    map.map.fm_length = FIEMAP_MAX_OFFSET;
    map.map.fm_extent_count = 1;
    int done = ioctl(file, FS_IOC_FIEMAP, &map.map);
    close(file);
    int is_known = done == 0 && map.map.fm_mapped_extents && !(map.map.fm_extents[0].fe_flags & FIEMAP_EXTENT_UNKNOWN);
    return is_known ? map.map.fm_extents[0].fe_physical : 0;
}

static int has_room(struct listing *of)
{
    if (of->count < of->room)
        return 1;
    size_t room = of->room ? 2 * of->room : 64;
    /* As reallocarray(3), which is younger than some C libraries. */
    struct entry *larger = room <= SIZE_MAX / sizeof *larger ? realloc(of->entries, room * sizeof *larger) : NULL;
    if (!larger)
        return 0;
    of->entries = larger;
    of->room = room;
    return 1;
}

static void drop(struct listing *of)
{
    for (size_t at = 0; at < of->count; at++)
        free(of->entries[at].is);
    free(of->entries);
    of->entries = NULL;
    of->count = of->room = of->at = 0;
    of->is_read = 0;
}

static void read_all(struct listing *of)
{
    int kept = errno;
    of->is_read = 1;
    of->error = 0;
    for (;;) {
        errno = 0;
        dirent *entry = real_readdir(of->stream);
        if (!entry) {
            of->error = errno;
            break;
        }
        size_t bytes = offsetof(dirent, d_name) + strlen(entry->d_name) + 1;
        dirent *copy = has_room(of) ? calloc(1, bytes < entry->d_reclen ? entry->d_reclen : bytes) : NULL;
        if (!copy) {
            of->error = ENOMEM;
            break;
        }
        memcpy(copy, entry, bytes);
        of->entries[of->count++] = (struct entry){copy, 0};
    }
    if (by_device) {
        /* Inodes, which hold the addresses, are met in their order. */
        qsort(of->entries, of->count, sizeof *of->entries, by_inode);
        for (size_t at = 0; at < of->count; at++)
            of->entries[at].address = address_of(dirfd(of->stream), of->entries[at].is);
    }
    qsort(of->entries, of->count, sizeof *of->entries, compare);
    /* What telldir(3) tells at that place. */
    for (size_t at = 0; at < of->count; at++)
        of->entries[at].is->d_off = (off_t)at + 1;
    errno = kept;
}

static struct listing **bucket_of(DIR *stream)
{
    return &listings[((uintptr_t)stream >> 4) % BUCKETS];
}

/* The listing of a stream; NULL for one that isn't sorted. */
static struct listing *listing_of(DIR *stream)
{
    if (!compare || !stream)
        return NULL;
    pthread_mutex_lock(&listings_lock);
    struct listing *found = *bucket_of(stream);
    while (found && found->stream != stream)
        found = found->next;
    pthread_mutex_unlock(&listings_lock);
    if (found)
        return found;
    int kept = errno;
    struct stat facts;
    struct listing *made = NULL;
    if (facts_of(dirfd(stream), &facts) == 0 && is_guided(facts.st_dev) && (made = calloc(1, sizeof *made))) {
        made->stream = stream;
        pthread_mutex_init(&made->lock, NULL);
        pthread_mutex_lock(&listings_lock);
        made->next = *bucket_of(stream);
        *bucket_of(stream) = made;
        pthread_mutex_unlock(&listings_lock);
    }
    errno = kept;
    return made;
}

static void forget(DIR *stream)
{
    if (!compare || !stream)
        return;
    pthread_mutex_lock(&listings_lock);
    struct listing **at = bucket_of(stream);
    while (*at && (*at)->stream != stream)
        at = &(*at)->next;
    struct listing *gone = *at;
    if (gone)
        *at = gone->next;
    pthread_mutex_unlock(&listings_lock);
    if (!gone)
        return;
    drop(gone);
    pthread_mutex_destroy(&gone->lock);
    free(gone);
}

static dirent *read_it(DIR *stream)
{
    FIND(readdir);
    struct listing *of = listing_of(stream);
    if (!of)
        return real_readdir(stream);
    pthread_mutex_lock(&of->lock);
    if (!of->is_read)
        read_all(of);
    dirent *entry = of->at < of->count ? of->entries[of->at++].is : NULL;
    if (!entry && of->error)
        errno = of->error;
    pthread_mutex_unlock(&of->lock);
    return entry;
}

/* One structure under two names here. */
struct dirent *readdir(DIR *stream)
{
    return (struct dirent *)read_it(stream);
}

struct dirent64 *readdir64(DIR *stream)
{
    return read_it(stream);
}

int closedir(DIR *stream)
{
    FIND(closedir);
    forget(stream);
    return real_closedir(stream);
}

void rewinddir(DIR *stream)
{
    FIND(rewinddir);
    struct listing *of = listing_of(stream);
    if (of) {
        pthread_mutex_lock(&of->lock);
        drop(of);
        pthread_mutex_unlock(&of->lock);
    }
    real_rewinddir(stream);
}

/* A place is the number of entries before it. */
long telldir(DIR *stream)
{
    FIND(telldir);
    struct listing *of = listing_of(stream);
    return of ? (long)of->at : real_telldir(stream);
}

void seekdir(DIR *stream, long place)
{
    FIND(readdir);
    FIND(seekdir);
    struct listing *of = listing_of(stream);
    if (!of) {
        real_seekdir(stream, place);
        return;
    }
    pthread_mutex_lock(&of->lock);
    if (!of->is_read)
        read_all(of);
    of->at = place < 0 ? 0 : (size_t)place < of->count ? (size_t)place : of->count;
    pthread_mutex_unlock(&of->lock);
}

#endif
