//! The notes of plugins about one Pod: what one extension point worked out and another reads.

use std::any::{Any, TypeId};
use std::fmt;

/// A note for each type. A plugin keeps its own types to itself, so no other can read or change its notes.
#[derive(Default)]
pub struct State(Vec<(TypeId, Box<dyn Any + Send + Sync>)>);

impl State {
    /// Writes a note; it takes the place of an earlier one of its type.
    pub fn put<T: Any + Send + Sync>(&mut self, note: T) {
        match self.get_mut::<T>() {
            Some(place) => *place = note,
            None => self.0.push((TypeId::of::<T>(), Box::new(note))),
        }
    }
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Reads a note.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.iter().find(|(id, _)| *id == TypeId::of::<T>())?.1.downcast_ref()
    }
    /// A note, to be changed.
    pub fn get_mut<T: Any>(&mut self) -> Option<&mut T> {
        self.0.iter_mut().find(|(id, _)| *id == TypeId::of::<T>())?.1.downcast_mut()
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({} notes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_note_a_type() {
        let mut state = State::default();
        state.put(1u8);
        state.put("a");
        state.put(2u8);
        if let Some(n) = state.get_mut::<u8>() {
            *n += 1;
        }
        assert_eq!(
            (state.get::<u8>(), state.get::<&str>(), state.get::<u16>()),
            (Some(&3), Some(&"a"), None)
        );
        assert_eq!(format!("{state:?}"), "State(2 notes)");
    }
}
