//! Command, environment and working directory.

use cri::runtime as pb;
use oci_spec::image::Config as ImageConfig;

use super::error::TranslateError;

/// The search path of a container whose image has none.
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The command: that of the configuration, or the image's entry point with the configuration's arguments, or all of the
/// image.
pub(super) fn arguments(
    config: &pb::ContainerConfig,
    image: &ImageConfig,
) -> Result<Vec<String>, TranslateError> {
    let (mut command, mut args) = (config.command.clone(), config.args.clone());
    if command.is_empty() {
        if args.is_empty() {
            args = image.cmd().clone().unwrap_or_default();
        }
        let entrypoint = image.entrypoint().clone().unwrap_or_default();
        if entrypoint != [""] {
            command = entrypoint;
        }
    }
    command.append(&mut args);
    if command.is_empty() { Err(TranslateError::NoCommand) } else { Ok(command) }
}

/// The environment: the image's, and over it the configuration's. `home` is the user's directory, for programs that
/// were not given one.
pub(super) fn environment(
    config: &pb::ContainerConfig,
    image: &ImageConfig,
    hostname: &str,
    home: &str,
) -> Vec<String> {
    let mut all = vec![PATH.to_owned()];
    if config.tty {
        all.push("TERM=xterm".to_owned());
    }
    all.push(format!("HOSTNAME={hostname}"));
    for variable in image.env().iter().flatten() {
        set(&mut all, variable.clone());
    }
    for variable in &config.envs {
        set(&mut all, format!("{}={}", variable.key, String::from_utf8_lossy(&variable.value)));
    }
    if !all.iter().any(|known| known.starts_with("HOME=")) {
        all.push(format!("HOME={home}"));
    }
    all
}

/// Sets a variable in the place of one of the same name; one without `=` removes that.
pub(crate) fn set(all: &mut Vec<String>, variable: String) {
    let Some((name, _)) = variable.split_once('=') else {
        all.retain(|known| known.split_once('=').is_none_or(|(name, _)| name != variable));
        return;
    };
    let same = |known: &&mut String| known.split_once('=').is_some_and(|(other, _)| other == name);
    match all.iter_mut().find(same) {
        Some(known) => *known = variable,
        None => all.push(variable),
    }
}

/// The working directory.
pub(super) fn directory(config: &pb::ContainerConfig, image: &ImageConfig) -> String {
    let wanted = [Some(&config.working_dir), image.working_dir().as_ref()];
    let wanted = wanted.into_iter().flatten().find(|dir| !dir.is_empty());
    match wanted {
        Some(dir) if dir.starts_with('/') => dir.clone(),
        Some(dir) => format!("/{dir}"),
        None => "/".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(entrypoint: &[&str], cmd: &[&str]) -> ImageConfig {
        let text = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut image = ImageConfig::default();
        image.set_entrypoint(Some(text(entrypoint))).set_cmd(Some(text(cmd)));
        image
    }

    #[test]
    fn commands() {
        type Words<'a> = &'a [&'a str];
        let check = |(entrypoint, cmd): (Words, Words), (command, args): (Words, Words), expected: Words| {
            let text = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
            let config =
                pb::ContainerConfig { command: text(command), args: text(args), ..Default::default() };
            let got = arguments(&config, &image(entrypoint, cmd)).unwrap_or_default();
            assert_eq!(got, expected, "{entrypoint:?} {cmd:?} {command:?} {args:?}");
        };
        check((&["e"], &["c"]), (&[], &[]), &["e", "c"]);
        check((&["e"], &["c"]), (&[], &["a"]), &["e", "a"]);
        check((&["e"], &["c"]), (&["x"], &[]), &["x"]);
        check((&["e"], &["c"]), (&["x"], &["a"]), &["x", "a"]);
        check((&[], &["c"]), (&[], &[]), &["c"]);
        check((&[""], &["c"]), (&[], &[]), &["c"]);
        check((&[], &[]), (&[], &["a"]), &["a"]);
        check((&[], &[]), (&[], &[]), &[]);
    }

    #[test]
    fn environments() {
        let mut image = image(&[], &[]);
        image.set_env(Some(vec!["PATH=/bin".into(), "A=1".into(), "B=2".into()]));
        let value = |key: &str, value: &str| pb::KeyValue { key: key.into(), value: value.into() };
        let config = pb::ContainerConfig {
            envs: vec![value("A", "3"), value("HOSTNAME", "own"), value("C", "x=y")],
            tty: true,
            ..Default::default()
        };
        assert_eq!(
            environment(&config, &image, "host", "/root"),
            ["PATH=/bin", "TERM=xterm", "HOSTNAME=own", "A=3", "B=2", "C=x=y", "HOME=/root"]
        );
        let mut all = vec!["A=1".to_owned(), "AB=2".to_owned()];
        set(&mut all, "A".to_owned());
        assert_eq!(all, ["AB=2"]);
    }

    #[test]
    fn directories() {
        let check = |config: &str, of_image: &str, expected: &str| {
            let mut image = image(&[], &[]);
            image.set_working_dir(Some(of_image.into()));
            let config = pb::ContainerConfig { working_dir: config.into(), ..Default::default() };
            assert_eq!(directory(&config, &image), expected);
        };
        check("", "", "/");
        check("", "/srv", "/srv");
        check("/tmp", "/srv", "/tmp");
        check("srv", "", "/srv");
    }
}
