//! What admission must admit, and when. The local table and the one in Redis are tested against the
//! same list. It is plain data: this crate knows nothing of the crates that use it.

/// Frames in a window of so many seconds, and messages a minute.
pub struct Case {
    /// What the case shows.
    pub name: &'static str,
    /// The limit of frames, and the window in seconds.
    pub frames: (u32, u32),
    /// The limit of stored events a minute; 0 is none.
    pub messages: u32,
    /// What is asked, in the order of time.
    pub steps: &'static [Step],
}

/// At so many milliseconds: `f` a frame, `m` a stored event; for each 0 where it is admitted, else
/// the seconds of its refusal.
pub type Step = (u64, &'static str, &'static [u32]);

/// All cases.
pub const CASES: &[Case] = &[
    Case {
        name: "the call after the last allowed one is refused",
        frames: (3, 5),
        messages: 0,
        steps: &[(0, "ffff", &[0, 0, 0, 5])],
    },
    Case {
        name: "one by one as in a batch",
        frames: (3, 5),
        messages: 0,
        steps: &[
            (0, "f", &[0]),
            (0, "f", &[0]),
            (0, "f", &[0]),
            (0, "f", &[5]),
        ],
    },
    Case {
        name: "admitted at the very end of the window, refused a millisecond before",
        frames: (1, 5),
        messages: 0,
        steps: &[
            (0, "f", &[0]),
            (4_999, "f", &[1]),
            (5_998, "f", &[1]),
            (5_999, "f", &[0]),
            (10_999, "f", &[0]),
            (15_999, "f", &[0]),
        ],
    },
    Case {
        name: "a refusal is kept to: not a millisecond earlier, exactly then",
        frames: (2, 5),
        messages: 0,
        steps: &[
            (0, "ff", &[0, 0]),
            (1_300, "f", &[4]),
            (5_000, "f", &[1]),
            (5_299, "f", &[1]),
            (5_300, "fff", &[0, 0, 5]),
        ],
    },
    Case {
        name: "what is refused costs nothing and puts nothing off",
        frames: (1, 2),
        messages: 0,
        steps: &[
            (0, "f", &[0]),
            (500, "ffff", &[2, 2, 2, 2]),
            (1_500, "ff", &[1, 1]),
            (2_499, "f", &[1]),
            (2_500, "ff", &[0, 2]),
        ],
    },
    Case {
        name: "no double burst where one window follows another",
        frames: (3, 5),
        messages: 0,
        steps: &[
            (4_990, "fff", &[0, 0, 0]),
            (5_010, "fff", &[5, 5, 5]),
            (10_010, "ffff", &[0, 0, 0, 5]),
        ],
    },
    Case {
        name: "the window slides: each admission frees its own place",
        frames: (2, 5),
        messages: 0,
        steps: &[
            (0, "f", &[0]),
            (3_000, "f", &[0]),
            (5_000, "ff", &[0, 3]),
            (8_000, "ff", &[0, 2]),
        ],
    },
    Case {
        name: "a message costs a frame, a frame no message",
        frames: (4, 5),
        messages: 2,
        steps: &[
            (0, "mmff", &[0, 0, 0, 0]),
            (10, "f", &[5]),
            (6_000, "fm", &[0, 54]),
        ],
    },
    Case {
        name: "a message refused for want of messages costs no frame",
        frames: (3, 5),
        messages: 1,
        steps: &[(0, "mmmmff", &[0, 60, 60, 60, 0, 0]), (0, "f", &[5])],
    },
    Case {
        name: "a message refused for want of frames costs no message",
        frames: (1, 1),
        messages: 2,
        steps: &[
            (0, "mm", &[0, 1]),
            (1_000, "mm", &[0, 59]),
            (2_000, "f", &[0]),
        ],
    },
    Case {
        name: "the longer of two waits is said",
        frames: (1, 5),
        messages: 1,
        steps: &[(0, "mmf", &[0, 60, 5])],
    },
    Case {
        name: "the longer of two waits is said, whichever it is",
        frames: (1, 120),
        messages: 1,
        steps: &[(0, "mm", &[0, 120])],
    },
    Case {
        name: "zero is no limit",
        frames: (0, 5),
        messages: 2,
        steps: &[(
            0,
            "ffffffffmmmffff",
            &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 60, 0, 0, 0, 0],
        )],
    },
    Case {
        name: "silence fills the budget up again",
        frames: (2, 5),
        messages: 2,
        steps: &[
            (0, "mm", &[0, 0]),
            (200_000, "mmm", &[0, 0, 60]),
            (10_000_000, "mmm", &[0, 0, 60]),
        ],
    },
];
