use strata::gpu::shader_source::{FILES, KernelKey, expand};

#[test]
fn shaders_every_variant_validates_with_and_without_immediates() {
    let keys = strata::gpu::kernels::variants();
    assert!(keys.len() > 50);
    for key in keys {
        for immediates in [true, false] {
            let text = expand(&key, immediates).unwrap();
            let module = naga::front::wgsl::parse_str(&text.wgsl)
                .unwrap_or_else(|e| panic!("{}: {}", key.label(), e.emit_to_string(&text.wgsl)));
            let mut validator =
                naga::valid::Validator::new(naga::valid::ValidationFlags::all(), naga::valid::Capabilities::all());
            let info = validator.validate(&module);
            assert!(info.is_ok(), "{}: {:?}", key.label(), info.err());
            assert_eq!(module.entry_points.len(), 1, "{}", key.label());
            assert_eq!(module.entry_points[0].name, "main");
        }
    }
}

#[test]
fn shaders_every_file_is_embedded_and_used() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("shaders");
    let mut on_disk = Vec::new();
    for folder in std::fs::read_dir(&root).unwrap() {
        let folder = folder.unwrap().path();
        for file in std::fs::read_dir(&folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.strip_prefix(&root).unwrap().with_extension("");
            on_disk.push(name.to_string_lossy().replace('\\', "/"));
        }
    }
    on_disk.sort();
    let mut embedded: Vec<String> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
    embedded.sort();
    assert_eq!(embedded, on_disk);
}

#[test]
fn shaders_unknown_define_or_open_directive_is_an_error() {
    let missing = expand(&KernelKey::new("attention/decode_split", &[]), true);
    assert!(missing.unwrap_err().to_string().contains("no define"));
    let unknown = expand(&KernelKey::new("no/such", &[]), true);
    assert!(unknown.unwrap_err().to_string().contains("no shader file"));
}
