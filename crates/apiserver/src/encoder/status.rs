//! A text in the form that was asked for, and errors in it.

use api::{Schema, Status};
use bytes::{BufMut, Bytes, BytesMut};

use crate::codec;
use crate::negotiate::{Form, Format};

/// A text of JSON as it is sent: as YAML, indented, or with a newline.
pub(super) fn finish_json(json: Bytes, form: Form) -> Result<Bytes, Status> {
    Ok(match form.format {
        Format::Yaml => codec::yaml(&json)?,
        _ if form.pretty => codec::pretty(&json),
        _ => {
            let mut out = BytesMut::from(json);
            out.put_u8(b'\n');
            out.freeze()
        }
    })
}

/// A `Status` in a form; conversions do not apply to it.
pub(crate) fn encode_status(status: &Status, form: Form) -> Bytes {
    let json = Bytes::from(status.to_json());
    if form.format == Format::Protobuf
        && let Ok(raw) =
            codec::proto_of_json(Schema::builtin(), "io.k8s.apimachinery.pkg.apis.meta.v1.Status", &json)
    {
        return codec::envelope("v1", "Status", &raw);
    }
    // No Status nests deeply enough to be no YAML.
    finish_json(json.clone(), form).unwrap_or(json)
}
