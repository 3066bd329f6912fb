//! A table of what is known of the last `capacity` principals. Plain data: time is an argument.
//!
//! Bound: `capacity`. When full: the one that was silent longest is forgotten for the new one, so
//! whoever comes is counted from then on. Those that were silent for `idle_ms` are forgotten a few
//! at a time. Memory grows in chunks, so that no growth copies what is there.

use hashbrown::HashTable;

/// 128 bits that stand for a principal: unguessable from outside, so that nobody can choose two
/// principals that collide.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64, pub u64);

const NONE: u32 = u32::MAX;
const CHUNK: usize = 1024;

struct Node<V> {
    key: Fingerprint,
    /// Milliseconds.
    last_seen: u64,
    /// Towards those seen later.
    newer: u32,
    older: u32,
    value: V,
}

/// See the module.
pub(super) struct Bounded<V> {
    capacity: usize,
    idle_ms: u64,
    chunks: Vec<Vec<Node<V>>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    newest: u32,
    oldest: u32,
}

impl<V: Default> Bounded<V> {
    pub(super) fn new(capacity: usize, idle_ms: u64) -> Self {
        Self {
            capacity: capacity.clamp(1, NONE as usize - 1),
            idle_ms,
            chunks: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            newest: NONE,
            oldest: NONE,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// What is known of `key`, seen now, and whether another was forgotten for it before its time.
    pub(super) fn seen(&mut self, key: Fingerprint, now: u64) -> (&mut V, bool) {
        let mut shed = false;
        let at = match self.find(key) {
            Some(at) => {
                self.unlink(at);
                at
            }
            None => {
                shed = self.len() >= self.capacity;
                if shed {
                    self.forget_oldest();
                }
                self.insert(key)
            }
        };
        self.link_newest(at);
        let idle_ms = self.idle_ms;
        let node = self.node(at);
        if now.saturating_sub(node.last_seen) >= idle_ms {
            node.value = V::default();
        }
        node.last_seen = now;
        (&mut node.value, shed)
    }

    /// Forgets up to `most` that are idle. The last one takes all memory with it.
    pub(super) fn expire(&mut self, now: u64, most: usize) {
        for _ in 0..most {
            let oldest = self.oldest;
            if oldest == NONE || now.saturating_sub(self.node(oldest).last_seen) < self.idle_ms {
                break;
            }
            self.forget_oldest();
        }
        if self.len() == 0 && !self.chunks.is_empty() {
            *self = Self::new(self.capacity, self.idle_ms);
        }
    }

    fn node(&mut self, at: u32) -> &mut Node<V> {
        let at = at as usize;
        &mut self.chunks[at / CHUNK][at % CHUNK]
    }

    fn find(&self, key: Fingerprint) -> Option<u32> {
        let chunks = &self.chunks;
        let is_it = |&at: &u32| chunks[at as usize / CHUNK][at as usize % CHUNK].key == key;
        self.index.find(key.0, is_it).copied()
    }

    fn insert(&mut self, key: Fingerprint) -> u32 {
        let node = Node {
            key,
            last_seen: 0,
            newer: NONE,
            older: NONE,
            value: V::default(),
        };
        let at = if let Some(at) = self.free.pop() {
            *self.node(at) = node;
            at
        } else {
            let is_full = self.chunks.last().is_none_or(|last| last.len() == CHUNK);
            if is_full {
                self.chunks.push(Vec::with_capacity(CHUNK));
            }
            let full = self.chunks.len() - 1;
            self.chunks[full].push(node);
            (full * CHUNK + self.chunks[full].len() - 1) as u32
        };
        let chunks = &self.chunks;
        let hash = |&at: &u32| chunks[at as usize / CHUNK][at as usize % CHUNK].key.0;
        self.index.insert_unique(key.0, at, hash);
        at
    }

    fn forget_oldest(&mut self) {
        let at = self.oldest;
        if at == NONE {
            return;
        }
        self.unlink(at);
        let node = self.node(at);
        node.value = V::default();
        let key = node.key;
        if let Ok(entry) = self.index.find_entry(key.0, |&found| found == at) {
            entry.remove();
        }
        self.free.push(at);
    }

    fn unlink(&mut self, at: u32) {
        let node = self.node(at);
        let (newer, older) = (node.newer, node.older);
        match newer {
            NONE => self.newest = older,
            newer => self.node(newer).older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.node(older).newer = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let before = std::mem::replace(&mut self.newest, at);
        let node = self.node(at);
        node.newer = NONE;
        node.older = before;
        match before {
            NONE => self.oldest = at,
            before => self.node(before).newer = at,
        }
    }
}
