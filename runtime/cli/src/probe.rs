//! `flagperf probe`: examines an engine, a library, a sidecar or a monitor in this process and prints the reply.

use std::process::ExitCode;

use super::arguments::ProbeArguments;
use super::reply::print_reply;
use flagperf_prepare::{ProbeReply, ProbeTarget};

/// Examines the target and prints the reply.
pub(super) fn probe(arguments: &ProbeArguments) -> anyhow::Result<ExitCode> {
    print_reply(|| match target(arguments) {
        Ok(target) => flagperf_prepare::probe(&target),
        Err(error) => ProbeReply::fails(format!("the options are not a map in JSON: {error}"), ""),
    })
}

/// Returns the target that the arguments describe; exactly one is given.
fn target(arguments: &ProbeArguments) -> Result<ProbeTarget, serde_json::Error> {
    if let Some(name) = &arguments.monitor {
        return Ok(ProbeTarget::Monitor(name.clone()));
    }
    if let [name, options @ ..] = arguments.engine.as_slice() {
        let options = serde_json::from_str(options.first().map_or("{}", String::as_str))?;
        return Ok(ProbeTarget::Engine { name: name.clone(), options });
    }
    if let [folder, command @ ..] = arguments.sidecar.as_slice() {
        return Ok(ProbeTarget::Sidecar { folder: folder.into(), command: command.to_vec() });
    }
    Ok(ProbeTarget::Plugin(arguments.library.clone().unwrap_or_default()))
}
