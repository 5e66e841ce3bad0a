//! The user of a container's process, by the image's `/etc/passwd` and `/etc/group`.

use cri::runtime as pb;

use super::error::TranslateError;

/// The accounts of an image.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    /// The text of `/etc/passwd`; empty if there is none.
    pub passwd: String,
    /// The text of `/etc/group`; empty if there is none.
    pub group: String,
}

/// The user of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// All groups, the primary one first.
    pub groups: Vec<u32>,
    /// The home directory, `/` if nobody tells.
    pub home: String,
}

/// A line of `/etc/passwd`.
struct Account<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
    home: &'a str,
}

/// A line of `/etc/group`.
struct Group<'a> {
    name: &'a str,
    gid: u32,
    members: &'a str,
}

impl Accounts {
    fn users(&self) -> impl Iterator<Item = Account<'_>> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.trim().split(':');
            let (name, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            let home = fields.nth(1).unwrap_or_default();
            Some(Account { name, uid: uid.parse().ok()?, gid: gid.parse().ok()?, home })
        })
    }
    fn groups(&self) -> impl Iterator<Item = Group<'_>> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.trim().split(':');
            let (name, _, gid) = (fields.next()?, fields.next()?, fields.next()?);
            Some(Group { name, gid: gid.parse().ok()?, members: fields.next().unwrap_or_default() })
        })
    }
}

/// An id as CRI has it, as the kernel has it: at most 2147483647, as elsewhere. The kernel takes 4294967295 for "as it
/// is", which would be root.
fn id(number: i64) -> Result<u32, TranslateError> {
    let found = i32::try_from(number).ok().and_then(|id| u32::try_from(id).ok());
    found.ok_or(TranslateError::Id(number))
}

/// The user that the configuration asks for, as `user[:group]`; empty if it asks for none.
fn wanted(context: &pb::LinuxContainerSecurityContext) -> Result<String, TranslateError> {
    let mut text = match &context.run_as_user {
        Some(user) => id(user.value)?.to_string(),
        None => String::new(),
    };
    if !context.run_as_username.is_empty() {
        text.clone_from(&context.run_as_username);
    }
    if let Some(group) = &context.run_as_group {
        if text.is_empty() {
            return Err(TranslateError::GroupWithoutUser(group.value));
        }
        text = format!("{text}:{}", id(group.value)?);
    }
    Ok(text)
}

/// The user of a container's process: the configuration's, else the image's (`of_image`, as `user[:group]`), else root.
pub(super) fn user(
    context: &pb::LinuxContainerSecurityContext,
    of_image: &str,
    accounts: &Accounts,
) -> Result<User, TranslateError> {
    let mut text = wanted(context)?;
    if text.is_empty() {
        of_image.clone_into(&mut text);
    }
    if text.is_empty() {
        "0".clone_into(&mut text);
    }
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, group),
        None => (text.as_str(), ""),
    };
    let account = accounts.users().find(|one| {
        // A name that is a number is a number, as elsewhere.
        user.parse::<u32>().map_or(one.name == user, |uid| one.uid == uid)
    });
    let uid = match (&account, user.parse::<u32>()) {
        (_, Ok(uid)) => uid,
        (Some(account), Err(_)) => account.uid,
        (None, Err(_)) => return Err(TranslateError::NoUser(user.to_owned())),
    };
    let gid = if group.is_empty() {
        account.as_ref().map_or(0, |one| one.gid)
    } else if let Ok(gid) = group.parse() {
        gid
    } else {
        let known = accounts.groups().find(|one| one.name == group);
        known.ok_or_else(|| TranslateError::NoGroup(group.to_owned()))?.gid
    };
    let (uid, gid) = (id(i64::from(uid))?, id(i64::from(gid))?);
    let mut groups = vec![gid];
    let mut add = |gid: u32| {
        if !groups.contains(&gid) {
            groups.push(gid);
        }
    };
    if context.supplemental_groups_policy() == pb::SupplementalGroupsPolicy::Merge
        && let Some(account) = &account
    {
        for one in accounts.groups().filter(|one| one.members.split(',').any(|m| m.trim() == account.name)) {
            add(id(i64::from(one.gid))?);
        }
    }
    for gid in &context.supplemental_groups {
        add(id(*gid)?);
    }
    let home = account.map(|one| one.home).filter(|home| !home.is_empty());
    Ok(User { uid, gid, groups, home: home.unwrap_or("/").to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accounts() -> Accounts {
        Accounts {
            passwd:
                "root:x:0:0:root:/root:/bin/sh\n\nbad line\nweb:x:1000:50:Web:/srv:/bin/sh\n1234:x:7:7::/:\nlarge:x:4294967295:1::/:\n"
                    .into(),
            group: "root:x:0:\nweb:x:1000:web\nvideo:x:44:other, web\nadm:x:4:other\nlarge:x:4294967295:\n".into(),
        }
    }

    fn context(user: Option<i64>, name: &str, group: Option<i64>) -> pb::LinuxContainerSecurityContext {
        pb::LinuxContainerSecurityContext {
            run_as_user: user.map(|value| pb::Int64Value { value }),
            run_as_username: name.into(),
            run_as_group: group.map(|value| pb::Int64Value { value }),
            ..Default::default()
        }
    }

    #[test]
    fn users() {
        let check = |context: pb::LinuxContainerSecurityContext,
                     image: &str,
                     expected: Result<(u32, u32, &[u32], &str), &str>| {
            let got = user(&context, image, &accounts()).map_err(|e| e.to_string());
            let got = got.as_ref().map(|u| (u.uid, u.gid, &u.groups[..], &u.home[..])).map_err(|e| &e[..]);
            assert_eq!(got, expected, "{context:?} {image}");
        };
        check(context(None, "", None), "", Ok((0, 0, &[0], "/root")));
        check(context(None, "", None), "web", Ok((1000, 50, &[50, 1000, 44], "/srv")));
        check(context(None, "", None), "1000:4", Ok((1000, 4, &[4, 1000, 44], "/srv")));
        check(context(None, "", None), "web:video", Ok((1000, 44, &[44, 1000], "/srv")));
        check(context(Some(5), "", None), "web", Ok((5, 0, &[0], "/")));
        check(context(Some(1000), "", Some(9)), "", Ok((1000, 9, &[9, 1000, 44], "/srv")));
        check(context(None, "web", None), "", Ok((1000, 50, &[50, 1000, 44], "/srv")));
        check(context(None, "1234", None), "", Ok((1234, 0, &[0], "/")));
        check(context(None, "no", None), "", Err("no user \"no\" in the image's /etc/passwd"));
        check(context(None, "web:no", None), "", Err("no group \"no\" in the image's /etc/group"));
        check(context(None, "", Some(9)), "", Err("user group 9 is specified without user"));
        check(context(Some(-1), "", None), "", Err("-1 is no id of a user or group"));
        let large = "4294967295 is no id of a user or group";
        for image in ["4294967295", "4294967295:0", "1:4294967295", "large", "1:large"] {
            check(context(None, "", None), image, Err(large));
        }
        check(context(None, "2147483647", None), "", Ok((2_147_483_647, 0, &[0], "/")));
        check(
            context(None, "4294967296", None),
            "",
            Err("no user \"4294967296\" in the image's /etc/passwd"),
        );
        check(context(Some(1 << 32), "", None), "", Err("4294967296 is no id of a user or group"));
    }

    #[test]
    fn supplemental_groups() {
        let mut context = context(None, "", None);
        context.supplemental_groups = vec![3, 44];
        let groups = |context| user(&context, "web", &accounts()).unwrap().groups;
        assert_eq!(groups(context.clone()), [50, 1000, 44, 3]);
        context.set_supplemental_groups_policy(pb::SupplementalGroupsPolicy::Strict);
        assert_eq!(groups(context), [50, 3, 44]);
    }
}
