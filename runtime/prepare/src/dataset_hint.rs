//! What to do about a dataset that is not there. Reads only the description of the dataset.

use std::path::Path;

use flagperf_config::{DATASET_FILE, DatasetDescription};
use flagperf_data::DataError;

/// Returns what to do about an error of the dataset in `data_dir`: the command that fetches it, if files are missing and the
/// dataset.yaml there or in the folder above names one.
pub fn hint(error: &DataError, data_dir: &Path) -> String {
    let is_missing = matches!(error, DataError::NoDirectory { .. } | DataError::Missing { .. });
    let homes = [Some(data_dir), data_dir.parent()].into_iter().flatten();
    let command = is_missing.then(|| homes.into_iter().find_map(fetch_command)).flatten();
    command.map_or_else(|| error.hint().to_owned(), |command| format!("get the dataset with `{command}`"))
}

/// Returns the command of the dataset.yaml in a folder.
fn fetch_command(home: &Path) -> Option<String> {
    let description = DatasetDescription::read(&home.join(DATASET_FILE), home).ok()?;
    Some(description.fetch?.replace("{}", &home.display().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flagperf_config::fixture::Checkout;

    #[test]
    fn the_command_that_fetches_a_dataset_is_that_of_its_description() {
        let lines = "name: toys\nabout: toys\nsource: drawn\nlicence: none\nlayout: {a: toys}\nfiles: [{path: a}]\n";
        let checkout = Checkout::new().with("datasets/toys/dataset.yaml", lines);
        let home = checkout.path("datasets/toys");
        let data_dir = home.join("generated");
        let error = DataError::NoDirectory { path: data_dir.clone() };
        assert_eq!(hint(&error, &data_dir), error.hint());
        let fetch = "fetch: draw {}/generated\n";
        let checkout = checkout.with("datasets/toys/dataset.yaml", &format!("{lines}{fetch}"));
        let expected = format!("get the dataset with `draw {}/generated`", checkout.path("datasets/toys").display());
        assert_eq!(hint(&error, &data_dir), expected);
        let other = DataError::Empty { path: data_dir.clone() };
        assert_eq!(hint(&other, &data_dir), other.hint());
    }
}
