// ptxas of the simulated GPU: hands PTX through. Compilers that emit PTX and ask `ptxas` for
// machine code (Triton, and with it PyTorch's Inductor and flag-gems) get their own text back as
// the image, which the simulated driver loads as it loads any PTX. The text is compiled once here,
// so that an instruction which the simulated GPU does not have is an error of the compiler, by name
// and line, as it would be with the real program: autotuners then leave that variant out.
//
//   ptxas [OPTIONS] INPUT.ptx -o OUTPUT     NVIDIA's options; those that choose optimisations and
//                                           reports mean nothing here and are passed over
//   ptxas --version                         CUDA 13.0
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx/engine.h"

namespace {

// As NVIDIA's program words it; callers show or search standard error.
__attribute__((format(printf, 1, 2))) int fatal(const char* format, ...) {
  va_list values;
  va_start(values, format);
  fputs("ptxas fatal   : ", stderr);
  vfprintf(stderr, format, values);
  fputc('\n', stderr);
  va_end(values);
  return 1;
}

struct Arguments {
  const char* input = nullptr;
  const char* output = "elf.o";  // NVIDIA's default
  const char* target = "sm_120";
  bool version = false;
};

// The value of an option in one of its forms: -o FILE, -oFILE (short ones), --output-file FILE,
// --output-file=FILE. Moves *k on when the value is the next word; null: another option.
const char* value_of(const char* name, char** argv, int argc, int* k) {
  const size_t length = strlen(name);
  const char* word = argv[*k];
  if (strncmp(word, name, length) != 0) return nullptr;
  if (word[length] == '=') return word + length + 1;
  if (word[length] == 0) return *k + 1 < argc ? argv[++*k] : "";
  return name[1] != '-' && name[2] == 0 ? word + length : nullptr;
}

bool is(const char* word, const char* one, const char* other) {
  return strcmp(word, one) == 0 || strcmp(word, other) == 0;
}

int read_arguments(int argc, char** argv, Arguments* out) {
  // Their value would be taken for the input file.
  static const char* const with_value[] = {"--opt-level",
                                           "--maxrregcount",
                                           "-maxrregcount",
                                           "--machine",
                                           "--def-load-cache",
                                           "-dlcm",
                                           "--def-store-cache",
                                           "-dscm",
                                           "--override-directive-values",
                                           "--split-compile"};
  for (int k = 1; k < argc; ++k) {
    const char* word = argv[k];
    if (word[0] != '-') {
      if (out->input)
        return fatal("more than one input file (%s, %s): the simulated GPU's ptxas takes one",
                     out->input, word);
      out->input = word;
      continue;
    }
    if (is(word, "--version", "-V")) {
      out->version = true;
    } else if (is(word, "--compile-only", "-c")) {
      return fatal(
          "%s: the simulated GPU has no relocatable objects; let the driver link PTX "
          "(cuLinkAddData)",
          word);
    } else if (const char* file = value_of("-o", argv, argc, &k);
               file || (file = value_of("--output-file", argv, argc, &k))) {
      out->output = file;
    } else if (const char* gpu = value_of("-arch", argv, argc, &k);
               gpu || (gpu = value_of("--gpu-name", argv, argc, &k))) {
      out->target = gpu;
    } else {
      for (const char* name : with_value)
        if (value_of(name, argv, argc, &k)) break;
    }
  }
  return 0;
}

// The whole file with a NUL after it; null with errno set.
char* read_file(const char* path, size_t* size) {
  FILE* file = fopen(path, "rb");
  if (!file) return nullptr;
  char* text = nullptr;
  size_t room = 0;
  *size = 0;
  for (size_t n = 1; n != 0; *size += n) {
    if (*size + 1 >= room) {
      room = room * 2 + (64 << 10);
      text = static_cast<char*>(realloc(text, room));
      if (!text) break;
    }
    n = fread(text + *size, 1, room - *size - 1, file);
  }
  if (text) text[*size] = 0;
  fclose(file);
  return text;
}

bool write_file(const char* path, const char* text, size_t size) {
  FILE* file = fopen(path, "wb");
  if (!file) return false;
  const bool written = fwrite(text, 1, size, file) == size;
  return fclose(file) == 0 && written;
}

int hand_through(const Arguments& arguments) {
  size_t size = 0;
  char* text = read_file(arguments.input, &size);
  if (!text) return fatal("cannot read %s: %s", arguments.input, strerror(errno));
  const unsigned sm = strncmp(arguments.target, "sm_", 3) == 0
                          ? static_cast<unsigned>(atoi(arguments.target + 3))
                          : 0;
  if (sm == 0) return fatal("%s is no target such as sm_120", arguments.target);
  static char log[8192];
  simgpu::ptx::Module* module = simgpu::ptx::compile(text, size, {sm}, log, sizeof log);
  if (!module) return fatal("%s: the simulated GPU cannot run this: %s", arguments.input, log);
  simgpu::ptx::destroy(module);
  if (!write_file(arguments.output, text, size))
    return fatal("cannot write %s: %s", arguments.output, strerror(errno));
  free(text);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  if (int status = read_arguments(argc, argv, &arguments); status != 0) return status;
  if (arguments.version) {
    puts(
        "ptxas of gpuckpt's simulated GPU: hands PTX through\n"
        "Cuda compilation tools, release 13.0, V13.0.88");
    return 0;
  }
  if (!arguments.input) return fatal("no input file");
  return hand_through(arguments);
}
