//! The network of Pods, which somebody else makes: a trait with its implementations for Pods that have none of their
//! own, and for plugins of CNI.

pub mod bandwidth;
mod cni;
mod interface;

pub use self::bandwidth::Bandwidth;
pub use self::cni::{Cni, Directories};
pub use self::interface::{Network, NetworkError, None, Pod, Work};
