//! The encoding of answers in the form that was asked for.

mod answer;
mod form_cache;
mod framer;
mod object;
mod status;
mod table;

pub(crate) use answer::{Encoded, encode};
pub(crate) use form_cache::FormCache;
pub(crate) use framer::Framer;
pub(crate) use object::{Encoder, object_json};
pub(crate) use status::encode_status;
