//! The sentences by which an agent tells why it does not join.

use anyhow::{Error, anyhow};
use api::Status;

/// The reason for which the server was not reached, with a remedy.
pub(super) fn unreachable(server: &str, status: &Status) -> Error {
    let why = &status.message;
    if why.contains("NotValidYet") || why.contains("not valid yet") {
        return anyhow!(
            "the certificate of {server} is not valid yet: is this machine's clock right, and the server's? ({why})"
        );
    }
    if why.contains("Expired") || why.contains("certificate expired") {
        return anyhow!(
            "the certificate of {server} has expired: is this machine's clock right, and the server's? ({why})"
        );
    }
    if why.contains("UnknownIssuer") {
        return anyhow!(
            "{server} is not a server of the cluster that the credentials are for: another authority signed its certificate"
        );
    }
    if why.contains("NotValidForName") || why.contains("not valid for name") {
        return anyhow!(
            "the certificate of {server} is for other names and addresses: use one that the server was started with ({why})"
        );
    }
    anyhow!("{server} is not reached: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies() {
        let check = |why: &str, expected: &str| {
            let told = unreachable("https://a:6443", &Status::failure(503, "", why)).to_string();
            assert!(told.contains(expected), "{told}");
        };
        check(
            "invalid peer certificate: certificate not valid yet: verification time",
            "is this machine's clock right",
        );
        check("invalid peer certificate: certificate expired: verification time", "has expired");
        check("invalid peer certificate: UnknownIssuer", "is not a server of the cluster");
        check("invalid peer certificate: certificate not valid for name \"a\"", "is for other names");
        check("Connection refused (os error 111)", "is not reached: Connection refused");
    }
}
