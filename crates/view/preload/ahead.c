/* Tells the helper of `onesweep run` which file a program opens, and lets the program wait until that file is in memory.
 *
 * It is in every process below the command, so it allocates nothing, takes no lock, keeps errno, and is safe in signal
 * handlers: there is only memory that is shared, fstat(2) and futex(2). Without a board it does nothing. */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "ahead.h"
#include "board.h"

typedef _Atomic uint32_t word;

/* How often a program that waits looks whether the helper still lives. */
static const struct timespec PATIENCE = {0, 100 * 1000 * 1000};
/* Seconds without a beat after which it is dead. */
enum { SILENCE = 5 };

/* Seconds between two looks that tell that this process stood still, and perhaps the helper, too (Ctrl-Z, docker pause). */
enum { STANDSTILL = 2 };

/* The last beat of the helper that was seen, and when; and when it was looked for it. */
struct pulse {
    uint32_t beat;
    time_t seen, looked;
};

static word *board;
/* How many slots its file has room for. */
static uint64_t slots;

static int (*real_open)(const char *, int, ...);
static int (*real_openat)(int, const char *, int, ...);
static FILE *(*real_fopen)(const char *, const char *);
static DIR *(*real_opendir)(const char *);

static uint32_t get(size_t at)
{
    return atomic_load_explicit(&board[at], memory_order_acquire);
}

static void wait_while(size_t at, uint32_t seen)
{
    syscall(SYS_futex, &board[at], FUTEX_WAIT, seen, &PATIENCE, NULL, 0);
}

static time_t now(void)
{
    struct timespec now = {0, 0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static struct pulse pulse_now(void)
{
    time_t at = now();
    return (struct pulse){get(WORD_PULSE), at, at};
}

/* True when the helper has died. */
static int is_alone(struct pulse *last)
{
    struct pulse current = pulse_now();
    if (current.beat != last->beat || current.looked - last->looked >= STANDSTILL)
        *last = current;
    last->looked = current.looked;
    if (current.seen - last->seen <= SILENCE)
        return 0;
    atomic_store(&board[WORD_PHASE], PHASE_OVER);
    return 1;
}

/* The number of the device plus one; zero for one that is none of the helper's. */
static uint32_t device_of(uint64_t dev)
{
    uint32_t devices = get(WORD_DEVICES);
    for (uint32_t at = 0; at < devices && at < DEVICES_MAX; at++) {
        uint64_t known = get(WORD_DEVICE + 2 * at) | (uint64_t)get(WORD_DEVICE + 2 * at + 1) << 32;
        if (known == dev)
            return at + 1;
    }
    return 0;
}

int facts_of(int fd, struct stat *facts)
{
#if defined SYS_fstat && (defined __x86_64__ || defined __aarch64__)
    /* fstat(3) is a symbol of glibc 2.33. */
    return (int)syscall(SYS_fstat, fd, facts);
#else
    return fstat(fd, facts);
#endif
}

int is_guided(uint64_t dev)
{
    return board && device_of(dev) != 0;
}

/* The first word of a file's slot; zero when it has none. */
static size_t slot_of(uint32_t device, uint64_t ino)
{
    uint32_t capacity = get(WORD_CAPACITY);
    if (capacity >= 32 || (uint64_t)1 << capacity > slots)
        return 0;
    uint64_t mask = ((uint64_t)1 << capacity) - 1;
    uint64_t at = (ino * UINT64_C(0x9e3779b97f4a7c15) ^ device) & mask;
    for (uint64_t step = 0; step <= mask; step++, at = (at + 1) & mask) {
        size_t slot = WORD_TABLE + SLOT_WORDS * at;
        uint32_t there = get(slot + SLOT_DEVICE);
        if (there == 0)
            return 0;
        if (there == device && get(slot + SLOT_INO_LOW) == (uint32_t)ino &&
            get(slot + SLOT_INO_HIGH) == (uint32_t)(ino >> 32))
            return slot;
    }
    return 0;
}

static void wait_for_file(size_t slot)
{
    uint32_t number = (uint32_t)((slot - WORD_TABLE) / SLOT_WORDS) + 1;
    struct pulse pulse = {0, 0, 0};
    int has_waited = 0;
    for (;;) {
        uint32_t tide = get(WORD_TIDE);
        uint32_t state = get(slot + SLOT_STATE);
        /* What was opened before and has gone since is read again by the program itself. */
        if (state & STATE_OPENED || (state & STATE_MASK) >= STATE_IN || get(WORD_PHASE) == PHASE_OVER)
            break;
        if ((state & STATE_MASK) == STATE_LATER) {
            atomic_store(&board[WORD_WANTED], number);
            atomic_fetch_add(&board[WORD_BELL], 1);
            syscall(SYS_futex, &board[WORD_BELL], FUTEX_WAKE, 1, NULL, NULL, 0);
        }
        if (!has_waited) {
            /* The helper looks who waits for what is coming whenever a file came in: nobody rings for that. */
            if ((state & STATE_MASK) == STATE_COMING)
                atomic_store(&board[WORD_WANTED], number);
            atomic_fetch_add(&board[WORD_WAITS], 1);
            pulse = pulse_now();
            has_waited = 1;
        }
        wait_while(WORD_TIDE, tide);
        if (is_alone(&pulse))
            break;
    }
    atomic_fetch_or(&board[slot + SLOT_STATE], STATE_OPENED);
    atomic_store_explicit(&board[WORD_LAST], number, memory_order_relaxed);
}

static void opened(int fd, int flags)
{
    if (!board || fd < 0 || get(WORD_PHASE) == PHASE_OVER || (flags & O_ACCMODE) == O_WRONLY || flags & O_PATH)
        return;
    int kept = errno;
    struct stat stat;
    uint32_t device;
    if (facts_of(fd, &stat) == 0 && (S_ISREG(stat.st_mode) || S_ISDIR(stat.st_mode)) && (device = device_of(stat.st_dev))) {
        if (get(WORD_PHASE) == PHASE_LOOKING) {
            struct pulse pulse = pulse_now();
            while (get(WORD_PHASE) == PHASE_LOOKING && !is_alone(&pulse))
                wait_while(WORD_PHASE, PHASE_LOOKING);
        }
        size_t slot = S_ISREG(stat.st_mode) && get(WORD_PHASE) == PHASE_GUIDED ? slot_of(device, stat.st_ino) : 0;
        if (slot)
            wait_for_file(slot);
    }
    errno = kept;
}

__attribute__((constructor)) static void begin(void)
{
    int kept = errno;
    real_open = dlsym(RTLD_NEXT, "open");
    real_openat = dlsym(RTLD_NEXT, "openat");
    real_fopen = dlsym(RTLD_NEXT, "fopen");
    real_opendir = dlsym(RTLD_NEXT, "opendir");
    const char *path = secure_getenv("ONESWEEP_BOARD");
    int fd = path && real_open ? real_open(path, O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK) : -1;
    struct stat stat;
    /* What another user has made, other than root, is believed in no way. */
    if (fd >= 0 && facts_of(fd, &stat) == 0 && S_ISREG(stat.st_mode) && (stat.st_uid == geteuid() || stat.st_uid == 0) &&
        stat.st_size > WORD_TABLE * 4) {
        void *shared = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (shared != MAP_FAILED) {
            board = shared;
            slots = ((uint64_t)stat.st_size / 4 - WORD_TABLE) / SLOT_WORDS;
            if (get(WORD_MAGIC) != BOARD_MAGIC || get(WORD_VERSION) != BOARD_VERSION)
                board = NULL;
        }
    }
    if (fd >= 0)
        close(fd);
    errno = kept;
}

static mode_t mode_of(int flags, va_list rest)
{
    return flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(rest, mode_t) : 0;
}

static int open_it(const char *path, int flags, mode_t mode)
{
    FIND(open);
    int fd = real_open(path, flags, mode);
    opened(fd, flags);
    return fd;
}

static int openat_it(int dir, const char *path, int flags, mode_t mode)
{
    FIND(openat);
    int fd = real_openat(dir, path, flags, mode);
    opened(fd, flags);
    return fd;
}

#define OPEN(name, extra)                                                                                              \
    int name(const char *path, int flags, ...)                                                                         \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return open_it(path, flags | (extra), mode);                                                                   \
    }

#define OPENAT(name, extra)                                                                                            \
    int name(int dir, const char *path, int flags, ...)                                                                \
    {                                                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = mode_of(flags, rest);                                                                            \
        va_end(rest);                                                                                                  \
        return openat_it(dir, path, flags | (extra), mode);                                                            \
    }

OPEN(open, 0)
OPEN(open64, O_LARGEFILE)
OPENAT(openat, 0)
OPENAT(openat64, O_LARGEFILE)

/* What fortified programs call when no mode is needed. */
int __open_2(const char *path, int flags)
{
    return open_it(path, flags, 0);
}

int __open64_2(const char *path, int flags)
{
    return open_it(path, flags | O_LARGEFILE, 0);
}

int __openat_2(int dir, const char *path, int flags)
{
    return openat_it(dir, path, flags, 0);
}

int __openat64_2(int dir, const char *path, int flags)
{
    return openat_it(dir, path, flags | O_LARGEFILE, 0);
}

static FILE *fopen_it(const char *path, const char *mode)
{
    FIND(fopen);
    FILE *file = real_fopen(path, mode);
    if (file && mode[0] == 'r')
        opened(fileno(file), O_RDONLY);
    return file;
}

FILE *fopen(const char *path, const char *mode)
{
    return fopen_it(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return fopen_it(path, mode);
}

DIR *opendir(const char *path)
{
    FIND(opendir);
    DIR *directory = real_opendir(path);
    if (directory)
        opened(dirfd(directory), O_RDONLY | O_DIRECTORY);
    return directory;
}
