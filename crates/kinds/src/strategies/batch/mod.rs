//! Jobs and CronJobs.

mod cron_job;
mod indexes;
mod job;
mod status;

pub(super) use cron_job::CRON_JOB;
pub(super) use job::JOB;
