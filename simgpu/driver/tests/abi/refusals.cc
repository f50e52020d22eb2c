// Makes calls that are refused by name and counted, for refusals.sh.
#include "check.h"

int main() {
  const unsigned char id[16] = {0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a,
                                0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9};
  CUuuid uuid;
  memcpy(&uuid, id, sizeof uuid);
  const void* table;
  for (int i = 0; i < 2; ++i) EXPECT(CUDA_ERROR_NOT_FOUND, cuGetExportTable(&table, &uuid));
  start();
  CUexternalMemory memory;
  CUmemGenericAllocationHandle multicast;
  for (int i = 0; i < 3; ++i)
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuImportExternalMemory(&memory, nullptr));
  EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuMulticastCreate(&multicast, nullptr));
  return 0;
}
