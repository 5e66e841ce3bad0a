//! A document while operations change it.

use std::collections::BTreeMap;

use crate::depth::measure;
use crate::tree::{Map, Node, Text};

/// A value of a document. A value is kept whole until an operation goes into it; then its parts are kept apart, so that
/// an operation costs as much as it changes, and not as much as the list or map is long in which it changes something.
pub(super) enum Doc {
    Whole(Node),
    Map(BTreeMap<Text, Doc>),
    List(Parts),
}

/// A list in pieces of limited length.
pub(super) struct Parts {
    pieces: Vec<Vec<Doc>>,
    len: usize,
}

/// The length of a new piece; a piece is halved when it is twice as long.
const PIECE: usize = 512;

impl Parts {
    fn new(list: Vec<Node>) -> Self {
        let len = list.len();
        let mut pieces = Vec::with_capacity(len / PIECE + 1);
        let mut rest = list.into_iter().map(Doc::Whole);
        loop {
            let piece: Vec<Doc> = rest.by_ref().take(PIECE).collect();
            if piece.is_empty() {
                return Self { pieces, len };
            }
            pieces.push(piece);
        }
    }
    pub(super) fn len(&self) -> usize {
        self.len
    }
    /// The piece and the place in it of an element.
    fn place(&self, mut i: usize) -> Option<(usize, usize)> {
        for (at, piece) in self.pieces.iter().enumerate() {
            if i < piece.len() {
                return Some((at, i));
            }
            i -= piece.len();
        }
        None
    }
    pub(super) fn get(&self, i: usize) -> Option<&Doc> {
        let (piece, at) = self.place(i)?;
        self.pieces[piece].get(at)
    }
    pub(super) fn get_mut(&mut self, i: usize) -> Option<&mut Doc> {
        let (piece, at) = self.place(i)?;
        self.pieces[piece].get_mut(at)
    }
    /// Puts an element before the one at `i`, or at the end.
    pub(super) fn insert(&mut self, i: usize, value: Doc) {
        let (piece, at) = if let Some(place) = self.place(i) {
            place
        } else {
            if self.pieces.is_empty() {
                self.pieces.push(Vec::new());
            }
            let last = self.pieces.len() - 1;
            (last, self.pieces[last].len())
        };
        let there = &mut self.pieces[piece];
        there.insert(at, value);
        if there.len() >= 2 * PIECE {
            let half = there.split_off(PIECE);
            self.pieces.insert(piece + 1, half);
        }
        self.len += 1;
    }
    pub(super) fn remove(&mut self, i: usize) -> Option<Doc> {
        let (piece, at) = self.place(i)?;
        let value = self.pieces[piece].remove(at);
        if self.pieces[piece].is_empty() {
            self.pieces.remove(piece);
        }
        self.len -= 1;
        Some(value)
    }
    fn iter(&self) -> impl Iterator<Item = &Doc> {
        self.pieces.iter().flatten()
    }
}

impl Doc {
    /// Takes a list or map apart.
    pub(super) fn open(&mut self) {
        if let Self::Whole(node @ (Node::Map(_) | Node::List(_))) = self {
            match std::mem::replace(node, Node::Null) {
                Node::Map(m) => {
                    *self =
                        Self::Map(m.into_entries().into_iter().map(|(k, v)| (k, Self::Whole(v))).collect());
                }
                Node::List(l) => *self = Self::List(Parts::new(l)),
                _ => {}
            }
        }
    }
    /// The value, put together again.
    pub(super) fn into_node(self) -> Node {
        match self {
            Self::Whole(node) => node,
            Self::Map(m) => {
                Node::Map(Map::from_entries(m.into_iter().map(|(k, v)| (k, v.into_node())).collect()))
            }
            Self::List(l) => Node::List(l.pieces.into_iter().flatten().map(Self::into_node).collect()),
        }
    }
    /// A copy of the value.
    pub(super) fn to_node(&self) -> Node {
        match self {
            Self::Whole(node) => node.clone(),
            Self::Map(m) => {
                Node::Map(Map::from_entries(m.iter().map(|(k, v)| (k.clone(), v.to_node())).collect()))
            }
            Self::List(l) => Node::List(l.iter().map(Self::to_node).collect()),
        }
    }
    /// Whether the document's value equals this one.
    pub(super) fn is(&self, node: &Node) -> bool {
        match (self, node) {
            (Self::Whole(own), _) => own == node,
            (Self::Map(own), Node::Map(m)) => {
                own.len() == m.len() && own.iter().zip(m.by_key()).all(|(a, b)| *a.0 == b.0 && a.1.is(&b.1))
            }
            (Self::List(own), Node::List(l)) => {
                own.len() == l.len() && own.iter().zip(l).all(|(a, b)| a.is(b))
            }
            _ => false,
        }
    }
    /// Measures the value like [`measure`].
    pub(super) fn measure(&self, limit: usize) -> Option<(usize, usize)> {
        let (mut depth, mut count) = (0, 1);
        let mut inside = |doc: &Self| -> Option<()> {
            let (d, n) = doc.measure(limit.checked_sub(1)?)?;
            (depth, count) = (depth.max(d), count + n);
            Some(())
        };
        match self {
            Self::Whole(node) => return measure(node, limit),
            Self::Map(m) => m.values().try_for_each(&mut inside)?,
            Self::List(l) => l.iter().try_for_each(&mut inside)?,
        }
        (depth < limit).then_some((depth + 1, count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lists in pieces and plain lists are equal after the same operations.
    #[test]
    fn pieces_are_a_list() {
        let value = |i: usize| Node::Int(i as i64);
        let mut plain: Vec<Node> = (0..3 * PIECE).map(value).collect();
        let mut parts = Parts::new(plain.clone());
        for i in 0..8 * PIECE {
            let at = i * 7919 % (plain.len() + 1);
            plain.insert(at, value(i));
            parts.insert(at, Doc::Whole(value(i)));
        }
        for i in 0..6 * PIECE {
            let at = i * 104_729 % plain.len();
            assert!(parts.get(at).is_some_and(|d| d.is(&plain[at])), "{at}");
            assert!(parts.remove(at).is_some_and(|d| d.is(&plain.remove(at))), "{at}");
        }
        assert!(parts.pieces.iter().all(|p| !p.is_empty() && p.len() < 2 * PIECE));
        assert_eq!(parts.len(), plain.len());
        assert!(parts.get(plain.len()).is_none() && parts.remove(plain.len()).is_none());
        let doc = Doc::List(parts);
        assert!(doc.is(&Node::List(plain.clone())));
        assert_eq!(doc.to_node(), Node::List(plain.clone()));
        assert_eq!(doc.measure(1), Some((1, plain.len() + 1)));
        assert_eq!(doc.into_node(), Node::List(plain));
        let mut empty = Parts::new(Vec::new());
        empty.insert(0, Doc::Whole(value(1)));
        assert_eq!(Doc::List(empty).into_node(), Node::List(vec![value(1)]));
    }
}
