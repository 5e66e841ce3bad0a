//! The object in a request's body, and what it must agree with the request on.

use access::RequestInfo;
use api::schema::Gvk;
use api::{Status, Struct};
use kinds::Strategy;

use crate::catalog::ResourceEntry;
use crate::codec;
use crate::negotiate;
use crate::options::FieldValidation;
use crate::request::Request;

/// The namespace in which a request's objects are.
pub(crate) fn scope_namespace<'a>(resource: &ResourceEntry, info: &'a RequestInfo) -> &'a str {
    if resource.namespaced { &info.namespace } else { "" }
}

/// The warning about the UIDs of owner references that stood twice.
pub(super) fn warn_of_owners(req: &Request, duplicates: &[String], after_admission: bool) {
    if duplicates.is_empty() {
        return;
    }
    let when = if after_admission { " after mutating admission happens" } else { "" };
    req.warn(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        duplicates.join(", ")
    ));
}

/// Refuses a body that names another namespace than its request.
pub(crate) fn same_namespace(of_body: &str, of_request: &str) -> Result<(), Status> {
    if of_body.is_empty() || of_body == of_request {
        return Ok(());
    }
    Err(Status::bad_request(
        "the namespace of the provided object does not match the namespace sent on the request",
    ))
}

/// The name that an object has must be that of its path.
pub(crate) fn check_name_of(has: &str, wanted: &str) -> Result<(), Status> {
    if has.is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({wanted} based on URL) was undeterminable: name must be provided"
        )));
    }
    if has != wanted {
        return Err(Status::bad_request(format!(
            "the name of the object ({has}) does not match the name on the URL ({wanted})"
        )));
    }
    Ok(())
}

/// Reads the body as an object of a kind, which may be a resource's with a strategy; unknown and duplicate fields as
/// the directive says.
pub(crate) fn read_object(
    req: &Request,
    kind: &Gvk,
    strategy: Option<&dyn Strategy>,
    validation: FieldValidation,
) -> Result<Struct, Status> {
    let format = negotiate::input(&req.content_type)?;
    let decoded = codec::decode(req.catalog.schema(), kind, strategy, format, &req.body)?;
    if !decoded.strict_errors.is_empty() {
        match validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => decoded.strict_errors.iter().for_each(|e| req.warn(e.clone())),
            FieldValidation::Strict => {
                return Err(Status::bad_request(format!(
                    "{} in version {:?} cannot be handled as a {}: strict decoding error: {}",
                    kind.kind,
                    kind.version.as_str(),
                    kind.kind,
                    decoded.strict_errors.join(", ")
                )));
            }
        }
    }
    Ok(decoded.tree)
}
