//! `flagperf key`: the key with which a site signs its results.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::arguments::KeyCommand;
use super::output::{print_mistake, print_result};
use flagperf_config::{env, find_root};
use flagperf_result::PrivateKey;

/// Creates or shows a key.
pub(super) fn key(command: &KeyCommand) -> anyhow::Result<ExitCode> {
    let done = match command {
        KeyCommand::New { file, name } => create(file.as_deref(), name),
        KeyCommand::Show { file } => show(file.as_deref()),
    };
    Ok(done.map_or_else(|message| print_mistake(&message), |text| print_result(&text, 0)))
}

/// Returns the private key's file in the user's folder for configuration.
pub(super) fn default_key_file() -> Option<PathBuf> {
    Some(env::config_folder()?.join("key"))
}

fn create(file: Option<&Path>, name: &str) -> Result<String, String> {
    let path = key_file(file)?;
    let key = PrivateKey::generate(name).map_err(|error| error.to_string())?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if let Some(root) = std::path::absolute(folder).ok().as_deref().and_then(find_root) {
        return Err(format!(
            "`{}` is in the checkout `{}`, where a private key does not belong; give another file",
            path.display(),
            root.display()
        ));
    }
    if path.exists() {
        let path = path.display();
        return Err(format!(
            "`{path}` exists already: `flagperf key show` prints its public key; give another file for a second key"
        ));
    }
    fs::create_dir_all(folder).map_err(|error| format!("`{}`: {error}", folder.display()))?;
    let (public, public_path) = (key.public().to_text(), public_file(&path));
    // A file that exists belongs to another key.
    let mut public_file = File::create_new(&public_path).map_err(|error| unwritten(&public_path, &error))?;
    let written = public_file.write_all(public.as_bytes()).map_err(|error| unwritten(&public_path, &error));
    if let Err(message) = written.and_then(|()| key.write_new(&path).map_err(|error| error.to_string())) {
        let _ = fs::remove_file(&public_path);
        return Err(message);
    }
    Ok(format!(
        "{public}The private key is in {}; only you can read it.\n\
         The public key, the line above, is in {}: propose it as vendors/VENDOR/keys/{name}.pub.\n\
         Then: flagperf sign RESULT\n",
        path.display(),
        public_path.display()
    ))
}

/// Returns the file of the public key: that of the private key with `.pub` added.
fn public_file(private: &Path) -> PathBuf {
    let mut name = private.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("the public key cannot be written to `{}`: {error}", path.display())
}

fn show(file: Option<&Path>) -> Result<String, String> {
    let key = PrivateKey::read(&key_file(file)?).map_err(|error| error.to_string())?;
    Ok(key.public().to_text())
}

fn key_file(given: Option<&Path>) -> Result<PathBuf, String> {
    let missing = || "neither XDG_CONFIG_HOME nor HOME is set: give the file of the key".to_owned();
    given.map(Path::to_owned).or_else(default_key_file).ok_or_else(missing)
}
