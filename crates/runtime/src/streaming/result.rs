//! The end of a command as clients are told it, by the version of their protocol.

use serde_json::json;

/// The versions of the remote command protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Version {
    V1,
    V2,
    V3,
    V4,
    V5,
}

/// The subprotocols of SPDY, newest first.
pub(crate) const SPDY: [(&str, Version); 5] = [
    ("v5.channel.k8s.io", Version::V5),
    ("v4.channel.k8s.io", Version::V4),
    ("v3.channel.k8s.io", Version::V3),
    ("v2.channel.k8s.io", Version::V2),
    ("", Version::V1),
];

/// The bytes of the error stream at a command's end; none if there is nothing to tell.
pub(crate) fn encode(version: Version, result: &Result<i32, String>) -> Option<Vec<u8>> {
    let message = match result {
        Ok(0) => None,
        Ok(code) => Some(format!("command terminated with non-zero exit code: exit status {code}")),
        Err(why) => Some(format!("Internal error occurred: {why}")),
    };
    if version < Version::V4 {
        // These clients put words of their own before it.
        return message.map(String::into_bytes);
    }
    let status = match result {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(why) => json!({
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "InternalError",
            "details": {"causes": [{"message": why}]},
            "code": 500,
        }),
    };
    Some(status.to_string().into_bytes())
}

#[cfg(test)]
mod tests {
    use streaming::remotecommand::{CommandError, decode_result};

    use super::*;

    #[test]
    fn ends_of_commands() {
        let check = |result: Result<i32, String>, expected: Result<(), CommandError>| {
            let bytes = encode(Version::V4, &result).unwrap();
            assert_eq!(decode_result(&bytes), expected);
        };
        check(Ok(0), Ok(()));
        check(Ok(7), Err(CommandError::Exit(7)));
        check(Err("gone".into()), Err(CommandError::Failed("Internal error occurred: gone".into())));
        assert_eq!(encode(Version::V1, &Ok(0)), None);
        let before = |result| String::from_utf8(encode(Version::V3, &result).unwrap()).unwrap();
        assert_eq!(before(Ok(2)), "command terminated with non-zero exit code: exit status 2");
        assert_eq!(before(Err("gone".into())), "Internal error occurred: gone");
    }
}
