//! What the generated views are made of.
//!
//! A view is a copyable handle on a struct of a tree, or on its absence, which reads as the zero
//! value, as a Go struct would. So a chain of accessors needs no checks on its way.

use std::marker::PhantomData;

use api::{Map, Node, Text};

/// What a field's node, or its absence, reads as.
pub trait Read<'a>: Copy {
    /// Reads it.
    fn read(node: Option<&'a Node>) -> Self;
}

impl<'a> Read<'a> for &'a str {
    fn read(node: Option<&'a Node>) -> Self {
        node.map_or("", Node::as_str)
    }
}
impl<'a> Read<'a> for bool {
    fn read(node: Option<&'a Node>) -> Self {
        node.and_then(Node::as_bool).unwrap_or(false)
    }
}
impl<'a> Read<'a> for i64 {
    fn read(node: Option<&'a Node>) -> Self {
        node.and_then(Node::as_int).unwrap_or(0)
    }
}
impl<'a> Read<'a> for f64 {
    fn read(node: Option<&'a Node>) -> Self {
        match node {
            Some(Node::Float(f)) => *f,
            Some(Node::Int(i)) => *i as f64,
            _ => 0.0,
        }
    }
}
impl<'a> Read<'a> for &'a Node {
    fn read(node: Option<&'a Node>) -> Self {
        node.unwrap_or(&Node::Null)
    }
}
impl<'a, T: Read<'a>> Read<'a> for Option<T> {
    fn read(node: Option<&'a Node>) -> Self {
        node.map(|n| T::read(Some(n)))
    }
}

/// An `intstr.IntOrString`; absent it is the number 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntOrStr<'a> {
    /// A number.
    Int(i64),
    /// A string, such as a port's name or a percentage.
    Str(&'a str),
}

impl<'a> Read<'a> for IntOrStr<'a> {
    fn read(node: Option<&'a Node>) -> Self {
        match node {
            Some(Node::Str(s)) => Self::Str(s),
            other => Self::Int(other.and_then(Node::as_int).unwrap_or(0)),
        }
    }
}

/// A list, empty if absent.
#[derive(Debug)]
pub struct ListView<'a, T> {
    nodes: &'a [Node],
    of: PhantomData<T>,
}

impl<T> Clone for ListView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for ListView<'_, T> {}

impl<'a, T: Read<'a>> Read<'a> for ListView<'a, T> {
    fn read(node: Option<&'a Node>) -> Self {
        Self { nodes: node.map_or(&[], Node::as_list), of: PhantomData }
    }
}

impl<'a, T: Read<'a>> ListView<'a, T> {
    /// The number of elements.
    pub fn len(self) -> usize {
        self.nodes.len()
    }
    /// Whether there is no element.
    pub fn is_empty(self) -> bool {
        self.nodes.is_empty()
    }
    /// The element at `i`.
    pub fn get(self, i: usize) -> Option<T> {
        self.nodes.get(i).map(|n| T::read(Some(n)))
    }
    /// The elements in order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = T> + ExactSizeIterator + Clone + use<'a, T> {
        self.nodes.iter().map(|n| T::read(Some(n)))
    }
    /// The nodes in order.
    pub fn nodes(self) -> &'a [Node] {
        self.nodes
    }
}

impl<'a, T: Read<'a>> IntoIterator for ListView<'a, T> {
    type Item = T;
    type IntoIter = std::iter::Map<std::slice::Iter<'a, Node>, fn(&'a Node) -> T>;
    fn into_iter(self) -> Self::IntoIter {
        self.nodes.iter().map(|n| T::read(Some(n)))
    }
}

/// A map from strings, empty if absent.
#[derive(Debug)]
pub struct MapView<'a, T> {
    map: Option<&'a Map>,
    of: PhantomData<T>,
}

impl<T> Clone for MapView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for MapView<'_, T> {}

impl<'a, T: Read<'a>> Read<'a> for MapView<'a, T> {
    fn read(node: Option<&'a Node>) -> Self {
        Self { map: node.and_then(Node::as_map), of: PhantomData }
    }
}

impl<'a, T: Read<'a>> MapView<'a, T> {
    /// The number of entries.
    pub fn len(self) -> usize {
        self.map.map_or(0, Map::len)
    }
    /// Whether there is no entry.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
    /// The value of a key.
    pub fn get(self, key: &str) -> Option<T> {
        self.map?.get(key).map(|n| T::read(Some(n)))
    }
    /// The entries in order of key.
    pub fn iter(self) -> impl Iterator<Item = (&'a str, T)> + use<'a, T> {
        self.map.into_iter().flat_map(Map::iter).map(|(k, n): (&'a Text, _)| (k.as_str(), T::read(Some(n))))
    }
    /// The map itself, if present.
    pub fn map(self) -> Option<&'a Map> {
        self.map
    }
}

/// What the generated files use.
pub(crate) mod prelude {
    pub(crate) use super::{IntOrStr, ListView, MapView, Read, view};
    pub(crate) use api::Node as Tree;
    pub(crate) use api::{FieldNo, Struct, StructId};
}

/// Declares a struct's view, `NAME`, and the module of its numbers.
macro_rules! view {
    ($name:ident $module:ident $id:literal { $($no:literal $constant:ident $method:ident : $ty:ty;)* }) => {
        #[doc = concat!("A view of a `", stringify!($name), "`.")]
        #[derive(Debug, Clone, Copy)]
        pub struct $name<'a>(Option<&'a Struct>);

        impl<'a> $name<'a> {
            /// A view of a tree, which must be of this type.
            pub fn of(tree: &'a Struct) -> Self {
                Self(Some(tree))
            }
            /// The struct, if present.
            pub fn tree(self) -> Option<&'a Struct> {
                self.0
            }
            $(
                #[doc = concat!("`", stringify!($method), "`")]
                #[allow(clippy::should_implement_trait, reason = "fields are named by upstream")]
                pub fn $method(self) -> $ty {
                    Read::read(self.0.and_then(|s| s.get(FieldNo($no))))
                }
            )*
        }

        impl<'a> Read<'a> for $name<'a> {
            fn read(node: Option<&'a Tree>) -> Self {
                Self(node.and_then(Tree::as_struct))
            }
        }

        #[doc = concat!("The numbers of `", stringify!($name), "`.")]
        pub mod $module {
            use super::*;
            /// The struct's.
            pub const ID: StructId = StructId($id);
            $(
                #[doc = concat!("`", stringify!($method), "`")]
                pub const $constant: FieldNo = FieldNo($no);
            )*
        }
    };
}
pub(crate) use view;
