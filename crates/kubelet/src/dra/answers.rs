//! The meaning of drivers' answers. Pure.

use plugins::dra as pb;

use super::error::Why;
use super::record::Device;

/// The calls' names in texts.
pub(super) const PREPARE: &str = "NodePrepareResources";
pub(super) const UNPREPARE: &str = "NodeUnprepareResources";

/// The devices that a driver prepared, for each claim that it was asked for, in the order of the question.
///
/// # Errors
/// It did not prepare all of them, or others.
pub(super) fn prepared(
    asked: &[pb::Claim],
    answer: pb::NodePrepareResourcesResponse,
) -> Result<Vec<Vec<Device>>, Why> {
    let mut claims = answer.claims;
    check(PREPARE, asked, claims.iter().map(|(uid, one)| (uid.as_str(), one.error.as_str())))?;
    let device = |d: pb::Device| Device {
        pool_name: d.pool_name,
        device_name: d.device_name,
        share_id: d.share_id,
        request_names: d.request_names,
        cdi_device_ids: d.cdi_device_ids,
    };
    let devices = |claim: &pb::Claim| claims.remove(&claim.uid).map(|one| one.devices).unwrap_or_default();
    Ok(asked.iter().map(devices).map(|all| all.into_iter().map(device).collect()).collect())
}

/// Looks whether a driver gave back every claim that it was asked for.
///
/// # Errors
/// It did not.
pub(super) fn unprepared(
    asked: &[pb::Claim],
    answer: &pb::NodeUnprepareResourcesResponse,
) -> Result<(), Why> {
    check(UNPREPARE, asked, answer.claims.iter().map(|(uid, one)| (uid.as_str(), one.error.as_str())))
}

fn check<'a>(
    call: &'static str,
    asked: &[pb::Claim],
    answered: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
) -> Result<(), Why> {
    let left_out = asked.len().saturating_sub(answered.len());
    for (uid, error) in answered {
        let claim = asked.iter().find(|c| c.uid == uid);
        let claim = claim.ok_or_else(|| Why::Unknown(call, shortened(uid)))?;
        if !error.is_empty() {
            return Err(Why::Failed(call, claim.name.clone(), shortened(error)));
        }
    }
    if left_out == 0 { Ok(()) } else { Err(Why::Skipped(call, left_out)) }
}

/// The beginning of a text that may be of any length: it goes into an Event.
fn shortened(text: &str) -> String {
    const MOST: usize = 1024;
    text.chars().take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(names: &[&str]) -> Vec<pb::Claim> {
        let one = |n: &&str| pb::Claim { namespace: "ns".into(), name: (*n).into(), uid: format!("uid-{n}") };
        names.iter().map(one).collect()
    }

    #[test]
    fn answers_are_for_what_was_asked() {
        let check = |names: &[&str], answered: &[(&str, &str)], expected: Result<(), &str>| {
            let one = |(uid, error): &(&str, &str)| {
                let one = pb::NodeUnprepareResourceResponse { error: (*error).into() };
                ((*uid).to_owned(), one)
            };
            let claims = answered.iter().map(one).collect();
            let got = unprepared(&asked(names), &pb::NodeUnprepareResourcesResponse { claims });
            assert_eq!(got.map_err(|e| e.to_string()), expected.map_err(str::to_owned), "{answered:?}");
            let one = |(uid, error): &(&str, &str)| {
                let device = pb::Device { device_name: format!("of {uid}"), ..pb::Device::default() };
                let one = pb::NodePrepareResourceResponse { error: (*error).into(), devices: vec![device] };
                ((*uid).to_owned(), one)
            };
            let claims = answered.iter().map(one).collect();
            let got = prepared(&asked(names), pb::NodePrepareResourcesResponse { claims });
            let expected = expected.map_err(|e| e.replace("Unprepare", "Prepare")).map(|()| {
                let one = |n: &&str| vec![Device { device_name: format!("of uid-{n}"), ..Device::default() }];
                names.iter().map(one).collect::<Vec<_>>()
            });
            assert_eq!(got.map_err(|e| e.to_string()), expected);
        };
        check(&["a"], &[("uid-a", "")], Ok(()));
        check(&["b", "a"], &[("uid-a", ""), ("uid-b", "")], Ok(()));
        check(&["a"], &[], Err("NodeUnprepareResources skipped 1 ResourceClaims"));
        check(&["a", "b"], &[("uid-a", "")], Err("NodeUnprepareResources skipped 1 ResourceClaims"));
        check(
            &["a"],
            &[("uid-a", "no room")],
            Err("NodeUnprepareResources failed for ResourceClaim a: no room"),
        );
        check(
            &["a"],
            &[("uid-x", "")],
            Err("NodeUnprepareResources returned result for unknown claim UID uid-x"),
        );
        check(
            &["a"],
            &[("uid-a", ""), ("uid-x", "")],
            Err("NodeUnprepareResources returned result for unknown claim UID uid-x"),
        );
        let long = "x".repeat(5000);
        let short = format!("NodeUnprepareResources failed for ResourceClaim a: {}", "x".repeat(1024));
        check(&["a"], &[("uid-a", &long)], Err(&short));
    }
}
