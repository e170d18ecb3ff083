// The opcodes of pickle protocols 0 to 5. Only the files of `pickle` include this.
#pragma once

#include <cstdint>

namespace milepost::pickle {

enum Opcode : uint8_t {
  // Protocols 0 and 1: arguments are lines of text, or binary
  kOpMark = '(',
  kOpStop = '.',
  kOpPop = '0',
  kOpPopMark = '1',
  kOpDup = '2',
  kOpFloat = 'F',
  kOpInt = 'I',
  kOpBinInt = 'J',
  kOpBinInt1 = 'K',
  kOpLong = 'L',
  kOpBinInt2 = 'M',
  kOpNone = 'N',
  kOpPersId = 'P',
  kOpBinPersId = 'Q',
  kOpReduce = 'R',
  kOpString = 'S',
  kOpBinString = 'T',
  kOpShortBinString = 'U',
  kOpUnicode = 'V',
  kOpBinUnicode = 'X',
  kOpAppend = 'a',
  kOpBuild = 'b',
  kOpGlobal = 'c',
  kOpDict = 'd',
  kOpEmptyDict = '}',
  kOpAppends = 'e',
  kOpGet = 'g',
  kOpBinGet = 'h',
  kOpInst = 'i',
  kOpLongBinGet = 'j',
  kOpList = 'l',
  kOpEmptyList = ']',
  kOpObj = 'o',
  kOpPut = 'p',
  kOpBinPut = 'q',
  kOpLongBinPut = 'r',
  kOpSetItem = 's',
  kOpTuple = 't',
  kOpEmptyTuple = ')',
  kOpSetItems = 'u',
  kOpBinFloat = 'G',
  // Protocol 2
  kOpProto = 0x80,
  kOpNewObj = 0x81,
  kOpExt1 = 0x82,
  kOpExt2 = 0x83,
  kOpExt4 = 0x84,
  kOpTuple1 = 0x85,
  kOpTuple2 = 0x86,
  kOpTuple3 = 0x87,
  kOpNewTrue = 0x88,
  kOpNewFalse = 0x89,
  kOpLong1 = 0x8a,
  kOpLong4 = 0x8b,
  // Protocol 3
  kOpBinBytes = 'B',
  kOpShortBinBytes = 'C',
  // Protocol 4
  kOpShortBinUnicode = 0x8c,
  kOpBinUnicode8 = 0x8d,
  kOpBinBytes8 = 0x8e,
  kOpEmptySet = 0x8f,
  kOpAddItems = 0x90,
  kOpFrozenSet = 0x91,
  kOpNewObjEx = 0x92,
  kOpStackGlobal = 0x93,
  kOpMemoize = 0x94,
  kOpFrame = 0x95,
  // Protocol 5
  kOpByteArray8 = 0x96,
  kOpNextBuffer = 0x97,
  kOpReadonlyBuffer = 0x98,
};

}  // namespace milepost::pickle
