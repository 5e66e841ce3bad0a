//! Lists in pieces, for clients whose messages are bounded.

use tonic::Status;

/// The number of things in a piece.
const PIECE: usize = 100;

/// The pieces of a list; a list without things has none.
pub(crate) fn chunks<T, R>(all: Vec<T>, made: impl Fn(Vec<T>) -> R) -> Vec<Result<R, Status>> {
    let (mut all, mut pieces) = (all.into_iter(), Vec::new());
    loop {
        let piece: Vec<T> = all.by_ref().take(PIECE).collect();
        if piece.is_empty() {
            return pieces;
        }
        pieces.push(Ok(made(piece)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces() {
        let lengths = |count: usize| {
            let all = chunks((0..count).collect(), |piece: Vec<usize>| piece.len());
            all.into_iter().map(Result::unwrap).collect::<Vec<_>>()
        };
        assert!(lengths(0).is_empty());
        assert_eq!(lengths(100), [100]);
        assert_eq!(lengths(250), [100, 100, 50]);
    }
}
