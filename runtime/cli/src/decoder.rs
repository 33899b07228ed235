//! `flagperf decoder`: builds decoders of images that vendors bring.

use std::path::Path;
use std::process::ExitCode;

use clap::{Subcommand, ValueHint};
use flagperf_config::Vendor;
use flagperf_core::exit_code;
use flagperf_core::units::Seconds;
use flagperf_operator::build_decoder;

use super::output::{print_mistake, print_result};
use super::setup::find_checkout;

/// The time limit of the command.
const BUILD_TIME_MAX: Seconds = Seconds(3600.0);

#[derive(Debug, Subcommand)]
pub(super) enum DecoderCommand {
    /// Build the library of a decoder by the command in vendor.yaml
    Build {
        /// The decoder: VENDOR/NAME
        #[arg(value_hint = ValueHint::Other)]
        decoder: String,
    },
}

pub(super) fn decoder(command: &DecoderCommand) -> anyhow::Result<ExitCode> {
    let DecoderCommand::Build { decoder } = command;
    Ok(match build(&find_checkout()?, decoder) {
        Ok(library) => print_result(&library, exit_code::OK),
        Err(message) => print_mistake(&message),
    })
}

/// Builds the library of a decoder, and returns the line that names it.
fn build(root: &Path, decoder: &str) -> Result<String, String> {
    let names = || format!("`{decoder}` is not the name of a decoder: give VENDOR/NAME");
    let (vendor, name) = decoder.split_once('/').ok_or_else(names)?;
    let vendor = Vendor::read(root, vendor).map_err(|finding| finding.to_string())?;
    let entry = vendor.decoder(name)?;
    let library =
        build_decoder(&vendor, name, entry, BUILD_TIME_MAX).map_err(|error| format!("decoder `{decoder}`: {error}"))?;
    Ok(format!("{}\n", library.display()))
}
