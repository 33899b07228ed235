//! The models that a server has, and loading and unloading them while it serves.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use flagperf_config::list_known;
use tokio::sync::Mutex;

use super::api_error::ApiError;
use super::model::{Model, Surroundings};
use super::model_source::ModelSource;
use super::store::ModelStore;

/// How long the requests of a model that is unloaded may take.
const UNLOAD_LIMIT: Duration = Duration::from_secs(60);

/// The versions of a model by number.
pub type Versions = BTreeMap<u64, Arc<Model>>;

/// The models of a server.
#[derive(Debug)]
pub struct Repository {
    store: Option<ModelStore>,
    surroundings: Surroundings,
    models: RwLock<BTreeMap<String, Versions>>,
    /// Held while a model is loaded or unloaded, so that one request does not undo another.
    changing: Mutex<()>,
}

/// A line of the repository's index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// The model.
    pub name: String,
    /// The version; `None` for a model that is not loaded.
    pub version: Option<u64>,
    /// Whether it can be used.
    pub is_ready: bool,
    /// Why not; empty if it can.
    pub reason: String,
}

impl Repository {
    /// Creates a repository without models. `store` has those that can be loaded by name.
    pub fn new(store: Option<ModelStore>, surroundings: Surroundings) -> Self {
        Repository { store, surroundings, models: RwLock::default(), changing: Mutex::default() }
    }

    /// Loads every model of the store.
    ///
    /// # Errors
    /// When one cannot be loaded: the messages of all of them.
    pub async fn load_all(&self) -> Result<(), Vec<String>> {
        let names = self.store.as_ref().map_or_else(|| Ok(Vec::new()), ModelStore::names);
        let names = names.map_err(|error| vec![format!("the model store cannot be read: {error}")])?;
        if names.is_empty() {
            return Err(vec!["the model store has no model: `MODEL/1/model.onnx` would be one".to_owned()]);
        }
        let mut failures = Vec::new();
        for name in names {
            if let Err(error) = self.load(&name).await {
                failures.push(error.message);
            }
        }
        if failures.is_empty() { Ok(()) } else { Err(failures) }
    }

    /// Loads a model of the store with all its versions. If it is loaded already, it is loaded again, and the new one takes
    /// its place when it is ready.
    ///
    /// # Errors
    /// When there is no such model, or it cannot be loaded: the old one stays.
    pub async fn load(&self, name: &str) -> Result<(), ApiError> {
        let store = self.store.as_ref().ok_or_else(|| ApiError::bad_request("the server has no model store"))?;
        let _changing = self.changing.lock().await;
        let sources = store.read(name).map_err(|error| ApiError::bad_request(error.to_string()))?;
        self.replace(sources).await.map_err(ApiError::bad_request)
    }

    /// Loads the versions of a model, which take the place of those that were loaded.
    ///
    /// # Errors
    /// When one cannot be loaded.
    pub async fn replace(&self, sources: Vec<ModelSource>) -> Result<(), String> {
        let Some(name) = sources.first().map(|source| source.name.clone()) else { return Ok(()) };
        let mut loaded = Versions::new();
        for source in sources {
            let version = source.version;
            match Model::load(source, &self.surroundings).await {
                Ok(model) => _ = loaded.insert(version, model),
                Err(reason) => {
                    end(loaded).await;
                    return Err(reason);
                }
            }
        }
        let replaced = self.models.write().unwrap_or_else(PoisonError::into_inner).insert(name, loaded);
        end(replaced.unwrap_or_default()).await;
        Ok(())
    }

    /// Unloads a model after its requests.
    ///
    /// # Errors
    /// When it is not loaded.
    pub async fn unload(&self, name: &str) -> Result<(), ApiError> {
        let _changing = self.changing.lock().await;
        let removed = self.models.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        end(removed.ok_or_else(|| self.not_loaded(name))?).await;
        Ok(())
    }

    /// Unloads every model after its requests.
    pub async fn unload_all(&self) {
        let models = std::mem::take(&mut *self.models.write().unwrap_or_else(PoisonError::into_inner));
        for versions in models.into_values() {
            end(versions).await;
        }
    }

    /// Returns the versions of a model.
    ///
    /// # Errors
    /// When it is not loaded.
    pub fn versions(&self, name: &str) -> Result<Versions, ApiError> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        let versions = models.get(name).cloned();
        drop(models);
        versions.ok_or_else(|| self.not_loaded(name))
    }

    /// Returns a version of a model; the highest if none is named.
    ///
    /// # Errors
    /// When it is not loaded.
    pub fn find(&self, name: &str, version: Option<&str>) -> Result<Arc<Model>, ApiError> {
        let versions = self.versions(name)?;
        let Some(wanted) = version.filter(|version| !version.is_empty()) else {
            return versions.into_values().next_back().ok_or_else(|| self.not_loaded(name));
        };
        let found = wanted.parse::<u64>().ok().and_then(|number| versions.get(&number).cloned());
        found.ok_or_else(|| {
            let known = versions.keys().map(u64::to_string).collect::<Vec<_>>().join(", ");
            ApiError::not_found(format!("model `{name}` has no version `{wanted}` (known: {known})"))
        })
    }

    /// Returns every version of every model.
    pub fn all(&self) -> Vec<Arc<Model>> {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        models.values().flat_map(Versions::values).cloned().collect()
    }

    /// Returns the models that are loaded, and those of the store that are not.
    pub fn index(&self) -> Vec<IndexEntry> {
        let mut entries: Vec<IndexEntry> = self.all().iter().map(|model| entry_of(model)).collect();
        let stored = self.store.as_ref().and_then(|store| store.names().ok()).unwrap_or_default();
        for name in stored {
            if !entries.iter().any(|entry| entry.name == name) {
                entries.push(IndexEntry { name, version: None, is_ready: false, reason: "not loaded".to_owned() });
            }
        }
        entries
    }

    fn not_loaded(&self, name: &str) -> ApiError {
        let models = self.models.read().unwrap_or_else(PoisonError::into_inner);
        let known = list_known(name, models.keys().map(String::as_str));
        ApiError::not_found(format!("unknown model `{name}` (loaded: {known})"))
    }
}

fn entry_of(model: &Model) -> IndexEntry {
    let is_ready = model.ready_instances() > 0;
    let reason = if is_ready { String::new() } else { model.why_not_ready() };
    let source = model.source();
    IndexEntry { name: source.name.clone(), version: Some(source.version), is_ready, reason }
}

/// Ends the workers of models after their requests.
async fn end(versions: Versions) {
    for model in versions.values() {
        model.unload(UNLOAD_LIMIT).await;
    }
}
