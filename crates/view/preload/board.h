/* The board: memory that the helper and the programs share. `src/board.rs` is the other side of it.
 *
 * Words of 32 bits in the machine's byte order. A slot is a file; the table is open addressing with steps of one. */
#ifndef ONESWEEP_BOARD_H
#define ONESWEEP_BOARD_H

enum {
    BOARD_MAGIC = 0x4f535741, /* OSWA */
    BOARD_VERSION = 1,

    WORD_MAGIC = 0,
    WORD_VERSION = 1,
    WORD_PHASE = 2,
    /* Rung by programs, heard by the helper. */
    WORD_BELL = 3,
    /* Rises with each file that came in; programs wait on it. */
    WORD_TIDE = 4,
    /* Rises while the helper lives. */
    WORD_PULSE = 5,
    /* The slot of the file that somebody has begun to wait for, and that of the last one opened; both plus one. */
    WORD_WANTED = 6,
    WORD_LAST = 7,
    WORD_DEVICES = 8,
    /* The number of slots is two to this power. */
    WORD_CAPACITY = 9,
    /* How many waited. */
    WORD_WAITS = 10,
    WORD_DEVICE = 16,
    DEVICES_MAX = 8,
    WORD_TABLE = 32,

    SLOT_WORDS = 4,
    SLOT_INO_LOW = 0,
    SLOT_INO_HIGH = 1,
    /* The number of its device plus one; zero in a slot that is free. */
    SLOT_DEVICE = 2,
    SLOT_STATE = 3,

    /* Trees are being looked at. */
    PHASE_LOOKING = 0,
    PHASE_GUIDED = 1,
    /* Nobody waits for anything, for good. */
    PHASE_OVER = 2,
    /* Trees are being looked at, and nobody waits for it. */
    PHASE_ASIDE = 3,

    STATE_LATER = 0,
    STATE_COMING = 1,
    STATE_IN = 2,
    /* It isn't brought in. */
    STATE_LEFT = 3,
    STATE_MASK = 3,
    STATE_OPENED = 4,
};

#endif
