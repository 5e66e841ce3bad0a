//! Shuffle sharding: which few queues of all a flow may use. Two flows rarely have all of them in common, so that one
//! which fills its queues leaves others some of theirs.

use sha2::{Digest, Sha256};

/// How many bits of a hash count: with more, hands would be less even.
const HASH_BITS: u32 = 60;

/// The largest deck.
const DECK: u32 = 1 << 26;

/// The largest hand that the bits of a hash allow for the smallest deck that is larger than it.
const HAND: usize = 15;

/// Deals hands of queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Dealer {
    deck: u32,
    hand: u32,
}

/// The cards of a hand: numbers of queues, all different.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hand {
    cards: [u32; HAND],
    len: usize,
}

impl Hand {
    /// The cards, in the order in which they were dealt.
    pub(super) fn cards(&self) -> &[u32] {
        &self.cards[..self.len]
    }
}

/// How many bits of a hash a hand takes.
fn entropy_bits(deck: u32, hand: u32) -> u32 {
    (f64::from(deck).log2() * f64::from(hand)).ceil() as u32
}

impl Dealer {
    /// Deals so many of so many cards.
    ///
    /// # Errors
    /// Upstream's text where that cannot be, or cannot be even.
    pub(super) fn new(deck: i32, hand: i32) -> Result<Self, String> {
        let (Ok(cards), Ok(held)) = (u32::try_from(deck), u32::try_from(hand)) else {
            return Err(format!("deckSize {deck} or handSize {hand} is not positive"));
        };
        if cards == 0 || held == 0 {
            return Err(format!("deckSize {deck} or handSize {hand} is not positive"));
        }
        if held > cards {
            return Err(format!("handSize {hand} is greater than deckSize {deck}"));
        }
        if cards > DECK {
            return Err(format!("deckSize {deck} is impractically large"));
        }
        if entropy_bits(cards, held) > HASH_BITS {
            return Err(format!(
                "required entropy bits of deckSize {deck} and handSize {hand} is greater than {HASH_BITS}"
            ));
        }
        // So many bits are never enough for a larger hand than this.
        Ok(Self { deck: cards, hand: held.min(HAND as u32) })
    }

    /// The number of queues in the deck.
    pub(super) fn deck(self) -> usize {
        self.deck as usize
    }

    /// The number of queues in a hand.
    pub(super) fn hand(self) -> u32 {
        self.hand
    }

    /// The hand of a flow. Equal hashes have equal hands.
    pub(super) fn deal(self, mut hash: u64) -> Hand {
        let mut cards = [0; HAND];
        let len = self.hand as usize;
        for (dealt, card) in cards.iter_mut().enumerate().take(len) {
            let left = u64::from(self.deck) - dealt as u64;
            *card = (hash % left) as u32;
            hash /= left;
        }
        // Each is a number among the cards that are left: those that were dealt before are counted in, the last first.
        let picked = cards;
        for (at, card) in cards.iter_mut().enumerate().take(len) {
            for earlier in picked[..at].iter().rev() {
                if *card >= *earlier {
                    *card += 1;
                }
            }
        }
        Hand { cards, len }
    }
}

/// The hash of a flow: the schema that its requests match, and what tells it from others of that schema.
pub(super) fn hash(schema: &str, distinguisher: &str) -> u64 {
    let sum = Sha256::new().chain_update(schema).chain_update([0]).chain_update(distinguisher).finalize();
    sum.iter().take(8).rev().fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use super::*;

    #[test]
    fn decks_and_hands() {
        let check = |deck: i32, hand: i32, expected: &str| {
            let made = Dealer::new(deck, hand);
            assert_eq!(made.err().unwrap_or_default(), expected, "{deck} {hand}");
        };
        check(-100, 8, "deckSize -100 or handSize 8 is not positive");
        check(100, 0, "deckSize 100 or handSize 0 is not positive");
        check(100, 101, "handSize 101 is greater than deckSize 100");
        check(1 << 27, 2, "deckSize 134217728 is impractically large");
        check(512, 8, "required entropy bits of deckSize 512 and handSize 8 is greater than 60");
        check(1024, 6, "");
        check(1, 1, "");
        assert_eq!((entropy_bits(1024, 6), entropy_bits(512, 8)), (60, 72));
    }

    #[test]
    fn no_card_twice() {
        for (deck, hand) in [(4, 4), (8, 8), (10, 10), (12, 12), (128, 8), (256, 7), (512, 6)] {
            let dealer = Dealer::new(deck, hand).unwrap();
            for _ in 0..100 {
                let dealt = dealer.deal(fastrand::u64(..));
                let cards: BTreeSet<u32> = dealt.cards().iter().copied().collect();
                assert!(cards.len() == hand as usize && cards.iter().all(|c| *c < deck as u32), "{cards:?}");
            }
        }
    }

    /// Every hand is dealt about as often as any other.
    #[test]
    fn hands_are_even() {
        let check = |deck: i32, hand: i32, hashes: u64| {
            let dealer = Dealer::new(deck, hand).unwrap();
            let mut seen: HashMap<Vec<u32>, u64> = HashMap::new();
            for hash in 0..hashes {
                let mut cards = dealer.deal(hash).cards().to_vec();
                cards.sort_unstable();
                *seen.entry(cards).or_default() += 1;
            }
            let factorial = |n: u64, of: u64| (0..of).map(|k| n - k).product::<u64>();
            let hand = hand as u64;
            let (all, orders) = (factorial(deck as u64, hand), factorial(hand, hand));
            let (least, most) = (orders * (hashes / all), orders * hashes.div_ceil(all));
            assert!(seen.values().all(|count| (least..=most).contains(count)), "{deck} {hand}");
            assert_eq!(seen.len() as u64, all / orders);
        };
        check(50, 3, 50 * 49 * 48);
        check(30, 4, 30 * 29 * 28 * 27);
        check(20, 3, 1 << 17);
    }

    #[test]
    fn flows_have_their_own_hash() {
        assert_eq!(hash("a", "b"), hash("a", "b"));
        assert_ne!(hash("a", "b"), hash("ab", ""));
        // The first eight bytes of SHA-256 of one zero byte, the lowest first.
        assert_eq!(hash("", ""), 0x987a_b3ff_9c0b_346e);
    }
}
