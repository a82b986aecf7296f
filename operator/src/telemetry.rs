//! Structured logs: JSON for collectors, text for people.

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// Installs the process's subscriber. `filter` is `tracing_subscriber`'s directive syntax, for example
/// `info,dem_operator=debug`.
///
/// # Errors
/// When the filter cannot be parsed or a subscriber is already installed.
pub fn init(format: LogFormat, filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)
        .map_err(|e| anyhow::anyhow!("log filter `{filter}`: {e}; for example `info,dem_operator=debug`"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let installed = match format {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).try_init(),
        LogFormat::Text => builder.try_init(),
    };
    installed.map_err(|e| anyhow::anyhow!("install the log subscriber: {e}"))
}
