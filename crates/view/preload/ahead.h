/* What the parts of the preloaded library have of each other. */
#ifndef ONESWEEP_AHEAD_H
#define ONESWEEP_AHEAD_H

#include <stdint.h>

/* Whether trees that the helper looks at are on that device. False without a helper. */
__attribute__((visibility("hidden"))) int is_guided(uint64_t dev);

/* Another library's constructor may call what is wrapped before this one's has run. */
#define FIND(name)                                                                                                     \
    do {                                                                                                               \
        if (!real_##name)                                                                                              \
            real_##name = dlsym(RTLD_NEXT, #name);                                                                     \
    } while (0)

#endif
