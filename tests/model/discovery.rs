//! Model discovery: folder layouts of other programs, built in a temporary folder.

use std::path::{Path, PathBuf};

use strata::model::ModelFile;
use strata::model::discovery::scan::Limits;
use strata::model::discovery::{DiscoveredModel, DiscoveryReport, Provider, SearchPath, search, search_paths};

use super::gguf_writer::{Val, Writer, tiny_llama};

struct Disk(tempfile::TempDir);

impl Disk {
    fn new() -> Disk {
        Disk(tempfile::tempdir().unwrap())
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    fn write(&self, below: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(below);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn own(&self) -> SearchPath {
        SearchPath { provider: Provider::Own, folder: self.0.path().to_owned() }
    }
}

#[cfg(unix)]
fn link(to: &Path, at: &Path) {
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    std::os::unix::fs::symlink(to, at).unwrap();
}

fn found(places: &[SearchPath], limits: &Limits) -> (Vec<DiscoveredModel>, DiscoveryReport) {
    let mut all = Vec::new();
    let searched = search(places, limits, &mut |found| {
        all.push(found);
        true
    });
    assert_eq!(searched.n_found, all.len());
    (all, searched)
}

fn names(found: &[DiscoveredModel]) -> Vec<(&str, &str, bool)> {
    found.iter().map(|f| (f.candidate.name.as_str(), f.candidate.within.as_str(), f.header.is_ok())).collect()
}

fn reason(found: &DiscoveredModel) -> &str {
    found.header.as_ref().err().map_or("", String::as_str)
}

/// The model in `n` parts: metadata and first tensors, then the rest of the tensors.
fn parts(n: usize) -> Vec<Vec<u8>> {
    let whole = tiny_llama();
    let per_part = whole.tensors.len().div_ceil(n);
    let part = |no: usize| {
        let mut writer = if no == 0 { tiny_llama() } else { Writer::new("llama") };
        writer.tensors = whole.tensors.iter().skip(no * per_part).take(per_part).cloned().collect();
        writer.set("split.no", Val::U32(no as u32));
        writer.set("split.count", Val::U32(n as u32));
        writer.bytes()
    };
    (0..n).map(part).collect()
}

#[cfg(unix)]
#[test]
fn hugging_face_cache_lists_each_file_once_by_its_repository() {
    let disk = Disk::new();
    let blob = disk.write("hub/models--ann--Tiny-GGUF/blobs/0a1b", &tiny_llama().bytes());
    for revision in ["aaaa", "bbbb"] {
        link(&blob, &disk.path(&format!("hub/models--ann--Tiny-GGUF/snapshots/{revision}/tiny-F32.gguf")));
    }
    link(Path::new("nowhere"), &disk.path("hub/models--ann--Tiny-GGUF/snapshots/aaaa/gone.gguf"));
    let home = disk.0.path().to_owned();
    let hub = search_paths(None, &|name| (name == "HF_HOME").then(|| home.clone()));
    assert_eq!(hub, [SearchPath { provider: Provider::HuggingFace, folder: disk.path("hub") }]);
    let (found, searched) = found(&hub, &Limits::default());
    assert_eq!(names(&found), [("gone", "ann/Tiny-GGUF", false), ("tiny-F32", "ann/Tiny-GGUF", true)]);
    assert!(reason(&found[0]).starts_with("Could not read"), "{}", reason(&found[0]));
    assert_eq!(found[1].candidate.bytes, tiny_llama().bytes().len() as u64);
    assert!(!searched.has_more);
}

/// A repository of the Hugging Face cache: a revision of links to blobs.
#[cfg(unix)]
fn snapshot(disk: &Disk, repository: &str, revision: &str, fixture: &str) {
    for entry in std::fs::read_dir(super::hf::fixture(fixture)).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let blob = disk.write(&format!("hub/{repository}/blobs/{name}-blob"), &std::fs::read(&path).unwrap());
        link(&blob, &disk.path(&format!("hub/{repository}/snapshots/{revision}/{name}")));
    }
}

#[cfg(unix)]
#[test]
fn hugging_face_cache_lists_folders_of_safetensors_once_and_opens_them() {
    let disk = Disk::new();
    snapshot(&disk, "models--ann--tiny-qwen2", "aaaa", "qwen2");
    snapshot(&disk, "models--ann--tiny-qwen2", "bbbb", "qwen2");
    snapshot(&disk, "models--gpt2", "cccc", "gpt2");
    // Not a language model, and a configuration without weights.
    disk.write("hub/models--ann--pictures/snapshots/dddd/unet/config.json", b"{}");
    disk.write("hub/models--ann--pictures/snapshots/dddd/unet/model.safetensors", b"");
    disk.write("hub/models--ann--words/snapshots/eeee/config.json", b"{}");
    let hub = SearchPath { provider: Provider::HuggingFace, folder: disk.path("hub") };
    let (found, _) = found(&[hub], &Limits::default());
    assert_eq!(names(&found), [("pictures/unet", "ann", false), ("tiny-qwen2", "ann", true), ("gpt2", "", true)]);
    assert!(reason(&found[0]).contains("does not describe a language model"), "{}", reason(&found[0]));
    let weights = std::fs::metadata(super::hf::fixture("qwen2").join("model.safetensors")).unwrap().len();
    assert_eq!(found[1].candidate.bytes, weights);
    assert_eq!(found[1].candidate.path, disk.path("hub/models--ann--tiny-qwen2/snapshots/aaaa"));
    let model = ModelFile::open(&found[1].candidate.path).unwrap();
    assert_eq!(model.info().name, "tiny-qwen2", "and not as its revision");
}

#[test]
fn ollama_models_are_found_by_manifest_with_their_names() {
    let disk = Disk::new();
    let digest = "ab".repeat(32);
    let manifest = |digest: &str| {
        format!(
            r#"{{"schemaVersion":2,"layers":[{{"mediaType":"application/vnd.ollama.image.license","digest":"sha256:{digest}"}},
            {{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:{digest}","size":1}}]}}"#
        )
    };
    disk.write(&format!("blobs/sha256-{digest}"), &tiny_llama().bytes());
    disk.write("manifests/registry.ollama.ai/library/tiny/1b", manifest(&digest).as_bytes());
    disk.write("manifests/registry.ollama.ai/library/tiny/latest", manifest(&digest).as_bytes());
    disk.write("manifests/registry.ollama.ai/ann/gone/latest", manifest(&"cd".repeat(32)).as_bytes());
    disk.write("manifests/registry.ollama.ai/ann/odd/latest", manifest("../../../../secret").as_bytes());
    disk.write("manifests/registry.ollama.ai/ann/torn/latest", b"{\"layers\":[");
    let place = SearchPath { provider: Provider::Ollama, folder: disk.0.path().to_owned() };
    let (found, _) = found(&[place], &Limits::default());
    assert_eq!(
        names(&found),
        [("ann/gone:latest", "", false), ("ann/odd:latest", "", false), ("ann/torn:latest", "", false), ("tiny:1b", "", true)],
        "the same file under another tag is not another model"
    );
    for (found, expected) in found.iter().zip(["ollama pull ann/gone:latest", "corrupt", "corrupt"]) {
        assert!(reason(found).contains(expected), "{}", reason(found));
    }
}

#[test]
fn lm_studio_and_jan_name_models_by_their_folders() {
    let disk = Disk::new();
    let lm_studio = disk.write(".lmstudio/models/ann/Tiny-GGUF/tiny-Q8_0.gguf", &tiny_llama().bytes());
    disk.write(".local/share/Jan/data/llamacpp/models/ann/tiny-jan/model.gguf", &tiny_llama().bytes());
    let at_home = search_paths(Some(disk.0.path()), &|_| None);
    assert_eq!(at_home.iter().map(|p| p.provider).collect::<Vec<_>>(), [Provider::LmStudio, Provider::Jan]);
    let (found, _) = found(&at_home, &Limits::default());
    assert_eq!(names(&found), [("tiny-Q8_0", "ann/Tiny-GGUF", true), ("tiny-jan", "", true)]);
    assert_eq!(found[0].candidate.path, lm_studio);
}

#[test]
fn unusable_files_are_listed_with_the_reason() {
    let disk = Disk::new();
    let mut foreign = tiny_llama();
    foreign.set("general.architecture", Val::Str("mamba"));
    let whole = tiny_llama().bytes();
    disk.write("a-foreign.gguf", &foreign.bytes());
    disk.write("b-short.gguf", &whole[..whole.len() - 100]);
    disk.write("c-page.gguf", b"<!doctype html>");
    disk.write("d-empty.gguf", b"");
    disk.write("e-part-00002-of-00002.gguf", &parts(2)[1]);
    disk.write("f-good.GGUF", &whole);
    disk.write("notes.txt", b"no model");
    let (found, _) = found(&[disk.own()], &Limits::default());
    let expected = ["'mamba' is not supported", "truncated", "web page", "empty", "e-part-00001-of-00002.gguf is missing", ""];
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(reason(found).contains(expected), "{}: {}", found.candidate.name, reason(found));
        assert!(expected.is_empty() || reason(found).ends_with('.'), "a sentence: {}", reason(found));
    }
    assert!(found[5].header.is_ok());
}

#[test]
fn split_model_is_one_entry_and_opens_as_a_whole() {
    let disk = Disk::new();
    let parts = parts(3);
    let path = |no: usize| format!("big/big-F32-{no:05}-of-00003.gguf");
    let written: Vec<PathBuf> = (0..3).map(|no| disk.write(&path(no + 1), &parts[no])).collect();
    let (found, _) = found(&[disk.own()], &Limits::default());
    assert_eq!(names(&found), [("big-F32", "big", true)]);
    assert_eq!(found[0].candidate.bytes, parts.iter().map(|p| p.len() as u64).sum::<u64>());
    let whole = ModelFile::from_static(Box::leak(tiny_llama().bytes().into_boxed_slice())).unwrap();
    // Any part opens all of them.
    for part in &written {
        let split = ModelFile::open(part).unwrap();
        assert_eq!(split.info().file_bytes, found[0].candidate.bytes);
        for (a, b) in split.plan().matrices().zip(whole.plan().matrices()) {
            assert_eq!(split.matrix_f32(a).unwrap(), whole.matrix_f32(b).unwrap());
        }
        assert_eq!(split.fingerprint().unwrap(), ModelFile::open(&written[0]).unwrap().fingerprint().unwrap());
    }
    // A part of another model is detected.
    disk.write(&path(2), &parts[2]);
    let refused = ModelFile::open(&written[0]).err().unwrap().to_string();
    assert!(refused.contains("big-F32-00002-of-00003.gguf") && refused.contains("part 2 of 3"), "{refused}");
}

#[test]
fn whole_model_with_the_name_of_a_part_opens_alone() {
    let disk = Disk::new();
    let whole = tiny_llama().bytes();
    for name in ["one-00001-of-00001.gguf", "some-00002-of-00003.gguf"] {
        let path = disk.write(name, &whole);
        assert_eq!(ModelFile::open(&path).unwrap().info().file_bytes, whole.len() as u64, "{name}");
    }
    let alone = disk.write("few-00001-of-00001.gguf", &parts(3)[0]);
    let refused = ModelFile::open(&alone).err().unwrap().to_string();
    assert!(refused.contains("one of 3 parts"), "{refused}");
}

#[cfg(unix)]
#[test]
fn search_ends_at_cycles_of_links_and_at_limits() {
    let disk = Disk::new();
    for i in 0..5 {
        disk.write(&format!("a/model-{i}.gguf"), &tiny_llama().bytes());
    }
    link(disk.0.path(), &disk.path("a/round"));
    link(&disk.path("a/model-0.gguf"), &disk.path("again.gguf"));
    disk.write("1/2/3/4/5/6/7/8/9/10/deep.gguf", &tiny_llama().bytes());
    let (all, searched) = found(&[disk.own(), disk.own()], &Limits::default());
    assert_eq!((all.len(), searched.has_more), (5, true), "each once, and the deepest is out of reach");
    for limits in [Limits { max_models: 3, ..Limits::default() }, Limits { max_entries: 4, ..Limits::default() }] {
        let (some, searched) = found(&[disk.own()], &limits);
        assert!(some.len() < 5 && searched.has_more, "{limits:?}: {}", some.len());
    }
    let mut told = 0;
    search(&[disk.own()], &Limits::default(), &mut |_| {
        told += 1;
        told < 2
    });
    assert_eq!(told, 2, "the caller ends it");
}

#[cfg(unix)]
#[test]
fn pipes_and_folders_named_like_models_are_skipped() {
    let disk = Disk::new();
    let _socket = std::os::unix::net::UnixListener::bind(disk.path("door.gguf")).unwrap();
    link(&disk.path("nowhere"), &disk.path("gone.gguf"));
    let (found, _) = found(&[disk.own()], &Limits::default());
    assert_eq!(names(&found), [("gone", "", false)], "a dangling link has a reason");
}

#[test]
fn missing_folder_is_reported() {
    let disk = Disk::new();
    let gone = SearchPath { provider: Provider::Own, folder: disk.path("gone") };
    let (all, searched) = found(&[gone], &Limits::default());
    assert!(all.is_empty());
    assert_eq!(searched.missing, [disk.path("gone")]);
}

#[cfg(unix)]
#[test]
fn real_models_in_their_stores_are_all_found_and_open() {
    let Some(models) = super::support::data("real_models_in_their_stores", "models") else { return };
    let disk = Disk::new();
    let mut n = 0;
    for folder in std::fs::read_dir(models).unwrap().flatten().map(|e| e.path()).filter(|p| p.is_dir()) {
        for file in
            std::fs::read_dir(&folder).unwrap().flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|e| e == "gguf"))
        {
            let name = file.file_name().unwrap().to_str().unwrap();
            link(&file, &disk.path(&format!(".cache/huggingface/hub/models--real--{n}/snapshots/1/{name}")));
            n += 1;
        }
    }
    let (found, _) = found(&search_paths(Some(disk.0.path()), &|_| None), &Limits::default());
    assert_eq!(found.len(), n);
    for found in &found {
        assert!(found.header.is_ok(), "{}: {}", found.candidate.name, reason(found));
    }
}
