/* Reads files in one of the ways in which programs open them, and writes what they have to standard output:
 * preloaded WAY FILE...
 * All of them are given to each way; a few take the first one alone. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s: %m\n", __LINE__, #what); _exit(1); } } while (0)

extern char **environ;

static char **files;
static int count;

static void put(int fd)
{
    char room[4096];
    ssize_t got;
    CHECK(fd >= 0);
    while ((got = read(fd, room, sizeof room)) > 0)
        CHECK(write(1, room, got) == got);
    CHECK(got == 0);
    close(fd);
}

static void put_stream(FILE *file)
{
    char room[4096];
    size_t got;
    CHECK(file);
    while ((got = fread(room, 1, sizeof room, file)) > 0)
        CHECK(write(1, room, got) == (ssize_t)got);
    CHECK(!ferror(file));
    fclose(file);
}

/* Each thread opens all files at once with the others, and one of them tells what they have. */
static pthread_barrier_t barrier;

static void *in_a_thread(void *number)
{
    for (int at = 0; at < count; at++) {
        pthread_barrier_wait(&barrier);
        int fd = open(files[at], O_RDONLY);
        CHECK(fd >= 0);
        if (number == NULL)
            put(fd);
        else
            close(fd);
    }
    return NULL;
}

/* A handler that opens what the main program waits for, or something else. */
static volatile sig_atomic_t handled;

static void in_a_handler(int signal)
{
    (void)signal;
    int kept = errno;
    int fd = open(files[handled++ % count], O_RDONLY);
    if (fd < 0)
        _exit(2);
    close(fd);
    errno = kept;
}

static void wait_for(pid_t child)
{
    int status;
    CHECK(child > 0);
    while (waitpid(child, &status, 0) < 0)
        CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *list_for_ever(void *path)
{
    for (;;) {
        DIR *dir = opendir(path);
        CHECK(dir);
        while (readdir(dir)) {
        }
        closedir(dir);
    }
    return NULL;
}

/* Children list a directory while threads of their parent do. */
static void fork_beside_who_lists(void)
{
    pthread_t threads[3];
    for (int at = 0; at < 3; at++)
        CHECK(pthread_create(&threads[at], NULL, list_for_ever, files[0]) == 0);
    for (int at = 0; at < 300; at++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            DIR *dir = opendir(files[0]);
            CHECK(dir && readdir(dir));
            closedir(dir);
            _exit(0);
        }
        wait_for(child);
    }
}

#ifdef __GLIBC__
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
#endif

int main(int words, char **word)
{
    CHECK(words > 2);
    const char *way = word[1];
    files = word + 2;
    count = words - 2;
    for (int at = 0; at < count; at++) {
        const char *file = files[at];
        char *cat[] = {"cat", files[at], NULL};
        pid_t child;
        if (!strcmp(way, "open"))
            put(open(file, O_RDONLY));
        else if (!strcmp(way, "open-to-write"))
            put(open(file, O_RDWR | O_CLOEXEC));
        else if (!strcmp(way, "openat"))
            put(openat(AT_FDCWD, file, O_RDONLY));
#ifdef __GLIBC__
        else if (!strcmp(way, "open64"))
            put(open64(file, O_RDONLY));
        else if (!strcmp(way, "openat64"))
            put(openat64(AT_FDCWD, file, O_RDONLY));
        else if (!strcmp(way, "__open_2"))
            put(__open_2(file, O_RDONLY));
        else if (!strcmp(way, "__open64_2"))
            put(__open64_2(file, O_RDONLY));
        else if (!strcmp(way, "__openat_2"))
            put(__openat_2(AT_FDCWD, file, O_RDONLY));
        else if (!strcmp(way, "__openat64_2"))
            put(__openat64_2(AT_FDCWD, file, O_RDONLY));
        else if (!strcmp(way, "fopen64"))
            put_stream(fopen64(file, "r"));
#endif
        else if (!strcmp(way, "fopen"))
            put_stream(fopen(file, "r"));
        else if (!strcmp(way, "fopen-to-write"))
            put_stream(fopen(file, "r+"));
        else if (!strcmp(way, "fork")) {
            if ((child = fork()) == 0) {
                put(open(file, O_RDONLY));
                _exit(0);
            }
            wait_for(child);
        } else if (!strcmp(way, "vfork")) {
            if ((child = vfork()) == 0) {
                execvp("cat", cat);
                _exit(1);
            }
            wait_for(child);
        } else if (!strcmp(way, "posix_spawn")) {
            CHECK(posix_spawnp(&child, "cat", NULL, NULL, cat, environ) == 0);
            wait_for(child);
        } else if (!strcmp(way, "threads")) {
            pthread_t threads[8];
            pthread_barrier_init(&barrier, NULL, 8);
            for (long number = 0; number < 8; number++)
                CHECK(pthread_create(&threads[number], NULL, in_a_thread, (void *)number) == 0);
            for (int number = 0; number < 8; number++)
                pthread_join(threads[number], NULL);
            return 0;
        } else if (!strcmp(way, "handler")) {
            struct sigaction action = {.sa_handler = in_a_handler, .sa_flags = SA_RESTART};
            struct itimerval often = {{0, 500}, {0, 500}};
            sigaction(SIGALRM, &action, NULL);
            CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
            for (int other = 0; other < count; other++)
                put(open(files[other], O_RDONLY));
            struct itimerval never = {{0, 0}, {0, 0}};
            setitimer(ITIMER_REAL, &never, NULL);
            CHECK(handled > 0);
            return 0;
        } else if (!strcmp(way, "fork-beside-lists")) {
            fork_beside_who_lists();
            return 0;
        } else {
            fprintf(stderr, "%s: no such way\n", way);
            return 1;
        }
    }
    return 0;
}
