//! JSON: from text to trees by the schema, in one pass, and back as upstream's encoder writes it.

mod any;
mod decode;
mod encode;
mod lexer;
mod sorted;

pub use any::{from_any, root_from_any, root_from_merged, root_from_patched, to_any};
#[cfg(test)]
pub(crate) use decode::decode_to;
pub use decode::{decode, decode_answer, decode_any, decode_any_strict, decode_fields};
pub(crate) use decode::{decode_any_at, raw, raw_value};
pub use encode::{compact, encode, encode_any, encode_kind, encode_node, encode_object, write_string};
pub use sorted::encode_sorted;

#[cfg(test)]
mod tests;
