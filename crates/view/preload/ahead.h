/* What the parts of the preloaded library have of each other. */
#ifndef ONESWEEP_AHEAD_H
#define ONESWEEP_AHEAD_H

#include <stdint.h>
#include <sys/stat.h>

/* Whether trees that the helper looks at are on that device. False without a helper. */
__attribute__((visibility("hidden"))) int is_guided(uint64_t dev);

/* As fstat(2). */
__attribute__((visibility("hidden"))) int facts_of(int fd, struct stat *facts);

/* A C library that lacks a version of a symbol that a library wants begins no program with it. So what is wanted is as old as can be:
 * this is where glibc had dlsym(3) before 2.34, and has it still. */
#if defined __GLIBC__ && defined __x86_64__
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#elif defined __GLIBC__ && defined __aarch64__
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
#endif

/* Another library's constructor may call what is wrapped before this one's has run. */
#define FIND(name)                                                                                                     \
    do {                                                                                                               \
        if (!real_##name)                                                                                              \
            real_##name = dlsym(RTLD_NEXT, #name);                                                                     \
    } while (0)

#endif
