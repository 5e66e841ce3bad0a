//! Sets of numbers of devices.

/// A set of small numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Bits(Vec<u64>);

/// How many numbers one word is about.
pub(super) const WORD: u32 = u64::BITS;

fn place(number: u32) -> (usize, u64) {
    ((number / WORD) as usize, 1 << (number % WORD))
}

impl Bits {
    pub(super) fn has(&self, number: u32) -> bool {
        let (word, bit) = place(number);
        self.word(word) & bit != 0
    }
    pub(super) fn set(&mut self, number: u32, is_in: bool) {
        let (word, bit) = place(number);
        if word >= self.0.len() {
            if !is_in {
                return;
            }
            self.0.resize(word + 1, 0);
        }
        if let Some(word) = self.0.get_mut(word) {
            *word = if is_in { *word | bit } else { *word & !bit };
        }
    }
    /// Those of 64 numbers that are in it.
    pub(super) fn word(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }
}

/// The bits of a word that are of numbers from `from` to before `to`.
pub(super) fn within(word: usize, from: u32, to: u32) -> u64 {
    let first = u32::try_from(word).unwrap_or(u32::MAX).saturating_mul(WORD);
    let low = from.saturating_sub(first).min(WORD);
    let high = to.saturating_sub(first).min(WORD);
    let below = |n: u32| if n >= WORD { u64::MAX } else { (1u64 << n) - 1 };
    below(high) & !below(low)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let mut bits = Bits::default();
        bits.set(200, false);
        assert_eq!(bits, Bits::default());
        for n in [0, 63, 64, 200] {
            bits.set(n, true);
        }
        bits.set(63, false);
        let all: Vec<u32> = (0..300).filter(|n| bits.has(*n)).collect();
        assert_eq!(all, [0, 64, 200]);
        assert_eq!((bits.word(1), bits.word(9)), (1, 0));
    }

    #[test]
    fn parts_of_words() {
        for (word, from, to, expected) in [
            (0, 0, 64, u64::MAX),
            (0, 0, 1000, u64::MAX),
            (0, 2, 4, 0b1100),
            (1, 2, 66, 0b11),
            (1, 64, 64, 0),
            (1, 0, 64, 0),
            (2, 130, 131, 0b100),
        ] {
            assert_eq!(within(word, from, to), expected, "{word} {from} {to}");
        }
    }
}
