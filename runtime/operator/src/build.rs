//! Runs the commands that build an operator's library, the libraries by which engines find it, and decoders of images.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use flagperf_config::{DecoderEntry, Finding, OperatorDescription, OperatorShell, Vendor};
use flagperf_core::suggestion::list_names;
use flagperf_core::units::Seconds;
use flagperf_host::{Ending, ProcessError, run_to_end};

/// The header that an operator includes.
const HEADER: &str = include_str!("../../plugin/include/flagperf_operator.h");
/// The header that a decoder includes.
const DECODER_HEADER: &str = include_str!("../../plugin/include/flagperf_decoder.h");

/// Why an operator cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// There is no command for the device.
    #[error("`build` has no command for `{device}` (known: {known})")]
    NoCommand { device: String, known: String },
    /// A header of the engine is missing.
    #[error("there is no `{header}` in {folders}")]
    NoHeader { header: String, folders: String },
    /// operator.yaml is wrong.
    #[error("{0}")]
    Description(Box<Finding>),
    /// There is no folder for the library.
    #[error("there is no folder for caches; set XDG_CACHE_HOME")]
    NoCache,
    /// The folder of the library cannot be written.
    #[error("cannot write to `{}`: {source}", .folder.display())]
    Folder { folder: PathBuf, source: std::io::Error },
    /// The program cannot be started, or did not end in time.
    #[error("{0}")]
    Start(#[from] ProcessError),
    /// The program failed; it printed why.
    #[error("`{program}` {}", .ending.predicate())]
    Failed { program: String, ending: Ending },
    /// The program succeeded without writing the library.
    #[error("`{program}` succeeded, but wrote no `{}`", .output.display())]
    NoLibrary { program: String, output: PathBuf },
}

/// Builds the library for a kind of device, in the user's cache, and returns its path. The compiler prints to the
/// standard streams of this process, and is killed after `time_max`. An existing library stays until the new one is complete.
///
/// # Errors
/// When there is no command for the device, or it fails.
pub fn build(operator: &OperatorDescription, device: &str, time_max: Seconds) -> Result<PathBuf, BuildError> {
    let known = || list_names(operator.build.keys().map(String::as_str));
    let entry = operator.build.get(device);
    let entry = entry.ok_or_else(|| BuildError::NoCommand { device: device.to_owned(), known: known() })?;
    compile_operator(operator, device, &entry.command, &[], time_max)
}

/// Builds the library by which an engine finds an operator, beside those of the operator. The engine's header is looked for in
/// `headers`, by default in the folders of the shell.
///
/// # Errors
/// When the header is missing or the command fails.
pub fn build_shell(
    operator: &OperatorDescription,
    name: &str,
    shell: &OperatorShell,
    vendor: &Path,
    headers: Option<&Path>,
    time_max: Seconds,
) -> Result<PathBuf, BuildError> {
    let folders: Vec<PathBuf> = headers.map_or_else(
        || shell.header_folders.iter().map(PathBuf::from).collect(),
        |folder| vec![std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())],
    );
    let missing = || {
        let folders: Vec<String> = folders.iter().map(|folder| format!("`{}`", folder.display())).collect();
        BuildError::NoHeader { header: shell.header.clone(), folders: folders.join(", ") }
    };
    let headers = folders.iter().find(|folder| folder.join(&shell.header).is_file()).ok_or_else(missing)?;
    let vendor = std::path::absolute(vendor).unwrap_or_else(|_| vendor.to_owned());
    compile_operator(operator, name, &shell.command, &[("{headers}", headers), ("{vendor}", &vendor)], time_max)
}

/// Builds the library of a vendor's decoder of images, in the user's cache, and returns its path, as [`build`] does.
///
/// # Errors
/// When the command fails.
pub fn build_decoder(
    vendor: &Vendor,
    name: &str,
    entry: &DecoderEntry,
    time_max: Seconds,
) -> Result<PathBuf, BuildError> {
    let library = vendor.decoder_library(name).ok_or(BuildError::NoCache)?;
    let headers = [("flagperf_decoder.h", DECODER_HEADER)];
    compile(&vendor.folder.join(&entry.folder), &library, &entry.command, &headers, &[], time_max)
}

/// Runs a command of an operator, in which `places` stand for paths, and returns the library that it wrote.
fn compile_operator(
    operator: &OperatorDescription,
    name: &str,
    command: &[String],
    places: &[(&str, &Path)],
    time_max: Seconds,
) -> Result<PathBuf, BuildError> {
    let library = operator.library(name).ok_or(BuildError::NoCache)?;
    let description = definitions(operator)?;
    let headers = [("flagperf_operator.h", HEADER), ("flagperf_operator_description.h", &*description)];
    compile(&operator.folder, &library, command, &headers, places, time_max)
}

/// Runs a command in a folder of sources, in which `places` stand for paths, and returns the library that it wrote.
fn compile(
    sources: &Path,
    library: &Path,
    command: &[String],
    headers: &[(&str, &str)],
    places: &[(&str, &Path)],
    time_max: Seconds,
) -> Result<PathBuf, BuildError> {
    let folder = library.parent().unwrap_or(sources);
    let include = folder.join("include");
    let failed = |source| BuildError::Folder { folder: folder.to_owned(), source };
    std::fs::create_dir_all(&include).map_err(failed)?;
    for (name, text) in headers {
        std::fs::write(include.join(name), text).map_err(failed)?;
    }
    let unfinished = library.with_extension(format!("{}.so", std::process::id()));
    let places = [("{output}", &*unfinished), ("{include}", &*include)].into_iter().chain(places.iter().copied());
    let place = |argument: &String| {
        places.clone().fold(argument.clone(), |text, (place, path)| text.replace(place, &path.to_string_lossy()))
    };
    let argv: Vec<String> = command.iter().map(place).collect();
    let program = argv.first().cloned().unwrap_or_default();
    let finished =
        run_to_end(&argv, Some(sources), time_max).map_err(BuildError::from).and_then(|ending| match ending {
            Ending::Exited(0) if std::fs::metadata(&unfinished).is_ok_and(|file| file.is_file() && file.len() > 0) => {
                std::fs::rename(&unfinished, library).map_err(failed)
            }
            Ending::Exited(0) => Err(BuildError::NoLibrary { program, output: unfinished.clone() }),
            ending => Err(BuildError::Failed { program, ending }),
        });
    if finished.is_err() {
        // Whatever a failed compiler has left is no library.
        let _ = std::fs::remove_file(&unfinished).or_else(|_| std::fs::remove_dir_all(&unfinished));
    }
    finished.map(|()| library.to_owned())
}

/// Returns what operator.yaml says of the operator, for the source of a shell.
fn definitions(operator: &OperatorDescription) -> Result<String, BuildError> {
    let definition = operator.definition().map_err(|finding| BuildError::Description(Box::new(finding)))?;
    let (vendor, name) = operator.name();
    let list =
        |texts: &mut dyn Iterator<Item = &str>| texts.map(|text| format!("\"{text}\"")).collect::<Vec<_>>().join(", ");
    let mut text = "// From operator.yaml.\n".to_owned();
    for (key, value) in [
        ("DOMAIN", list(&mut [vendor].into_iter())),
        ("NAME", list(&mut [name].into_iter())),
        ("ATTRIBUTES", list(&mut definition.attribute_names().into_iter())),
        ("TYPES", list(&mut operator.types.iter().map(String::as_str))),
    ] {
        let _ = writeln!(text, "#define FLAGPERF_OPERATOR_{key} {value}");
    }
    Ok(text)
}
