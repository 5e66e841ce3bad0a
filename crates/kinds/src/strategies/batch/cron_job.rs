//! CronJobs.

use api::field::{Errors, Path, Raw, Typed};
use api::names::name_subdomain;
use api::view::{View, same};

use super::job::{common_spec, same_generation, spec_warnings};
use crate::columns;
use crate::strategies::generic::{
    self, NAMESPACED, STATUS, bump_if_changed, check, check_update, keep_status,
};
use crate::strategies::meta::{core_meta, core_meta_update};
use crate::strategies::pod::leniency::options;
use crate::strategies::pod::options::Options;
use crate::strategies::rules::{Rules, Takes};
use crate::strategies::template::{drop_in_template, name_warning, whole};

pub(crate) const CRON_JOB: Rules = Rules {
    group: "batch",
    resource: "cronjobs",
    columns: columns::workloads::CRON_JOB,
    takes: Takes::BUT_STATUS,
    prepare_create: |c, s| {
        generic::create(c, s);
        drop_in_template(c, s, CRON_TEMPLATE, None);
    },
    prepare_update: |c, n, o| {
        keep_status(c, n, o);
        drop_in_template(c, n, CRON_TEMPLATE, Some(o));
        bump_if_changed(c, n, o, &["spec"]);
    },
    validate: |c, s| {
        check(c, s, |e, v| {
            core_meta(e, v.st("metadata"), true, name_subdomain);
            cron_spec(e, v.st("spec"), None, &options(*c, false, None));
            let name = v.st("metadata").str("name");
            if name.len() > 63 - 11 {
                e.invalid(&Path::root("metadata.name"), name, "must be no more than 52 characters");
            }
        })
    },
    validate_update: |c, n, o| {
        check_update(c, n, o, |e, n, o| {
            core_meta_update(e, n.st("metadata"), o.st("metadata"));
            let old = o.st("spec").st("jobTemplate").st("spec").st("template");
            let options = options(*c, false, Some((old.st("spec"), old.st("metadata"))));
            cron_spec(e, n.st("spec"), Some(o.st("spec")), &options);
        })
    },
    warnings: |c, n, old| {
        let v = View::new(c.schema, n);
        let spec = v.st("spec");
        let mut out = Vec::new();
        if old.is_none() {
            name_warning(&mut out, v.st("metadata"));
        }
        if old.is_none_or(|o| !same_generation(c, v, o)) {
            spec_warnings(&mut out, &Path::root("spec.jobTemplate.spec"), spec.st("jobTemplate").st("spec"));
        }
        if old.is_some() && spec.str("schedule").contains("TZ") {
            out.push("cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details".into());
        }
        out
    },
    subresources: &[STATUS],
    ..NAMESPACED
};

const CRON_TEMPLATE: &[&str] = &["spec", "jobTemplate", "spec", "template"];

fn cron_spec(errs: &mut Errors, spec: View<'_>, old: Option<View<'_>>, o: &Options<'_>) {
    let at = Path::root("spec");
    let text = spec.str("schedule");
    let schedule_at = at.field("schedule");
    if text.is_empty() {
        errs.required(&schedule_at, "");
    } else {
        if let Err(why) = api::cron::parse(text) {
            errs.invalid(&schedule_at, text, why);
        }
        let had_zone = old.is_some_and(|o| o.str("schedule").contains("TZ"));
        if text.contains("TZ") {
            if !had_zone {
                errs.invalid(
                    &schedule_at,
                    text,
                    "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
                );
            } else if spec.has("timeZone") {
                errs.invalid(
                    &schedule_at,
                    text,
                    "cannot use both timeZone field and TZ or CRON_TZ in schedule",
                );
            }
        }
    }
    if let Some(n) = spec.opt_int("startingDeadlineSeconds") {
        errs.non_negative(&at.field("startingDeadlineSeconds"), n);
    }
    if old.is_none_or(|o| !same(o.get("timeZone"), spec.get("timeZone")))
        && let Some(zone) = spec.opt_str("timeZone")
    {
        time_zone(errs, &at.field("timeZone"), zone);
    }
    let policy = spec.str("concurrencyPolicy");
    let policy_at = at.field("concurrencyPolicy");
    if policy.is_empty() {
        errs.required(&policy_at, "");
    } else {
        errs.one_of(&policy_at, policy, &["Allow", "Forbid", "Replace"]);
    }
    let job = spec.st("jobTemplate").st("spec");
    let job_at = at.field("jobTemplate");
    let job_at = job_at.field("spec");
    common_spec(errs, &job_at, job, o);
    if let Some(s) = job.opt("selector") {
        errs.invalid(&job_at.field("selector"), whole(s), "`selector` will be auto-generated");
    }
    if job.bool("manualSelector") {
        errs.not_supported(&job_at.field("manualSelector"), Raw("true".into()), &["nil", "false"]);
    }
    for f in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        if let Some(n) = spec.opt_int(f) {
            errs.non_negative(&at.field(f), n);
        }
    }
}

/// Checks the name of a time zone, which must be in the database.
fn time_zone(errs: &mut Errors, at: &Path<'_>, zone: &str) {
    if zone.is_empty() {
        errs.invalid(at, zone, "timeZone must be nil or non-empty string");
        return;
    }
    let well_formed = |part: &str| {
        part != "."
            && part != ".."
            && !part.starts_with('-')
            && (1..=14).contains(&part.len())
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+'))
    };
    if !zone.split('/').all(well_formed) {
        errs.invalid(at, Typed(zone), format!("unknown time zone {zone}"));
        return;
    }
    if zone.eq_ignore_ascii_case("Local") {
        errs.invalid(
            at,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
        return;
    }
    // The database takes any case, but upstream's does not.
    let known = jiff::tz::TimeZoneDatabase::bundled().get(zone).is_ok_and(|z| z.iana_name() == Some(zone));
    if !known {
        errs.invalid(at, Typed(zone), format!("unknown time zone {zone}"));
    }
}
