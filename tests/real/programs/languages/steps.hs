-- steps STEPS PACE_MS: eight green threads of GHC's runtime on two of the system's, and a map that grows.
import Control.Concurrent
import Control.Monad
import qualified Data.Map.Strict as Map
import System.Environment
import System.IO

mix :: Int -> Int -> Int
mix value count = foldl (\a i -> (a * 31 + i) `mod` 1000003) value [0 .. count]

main :: IO ()
main = do
  [steps, pace] <- map read <$> getArgs
  hSetBuffering stdout LineBuffering
  foldM_ (next pace) (1, Map.empty) [0 .. steps - 1]

next :: Int -> (Int, Map.Map Int Int) -> Int -> IO (Int, Map.Map Int Int)
next pace (before, seen) step = do
  let value = mix before 100000
      more = Map.insert (value `mod` 500) value seen
  results <- newEmptyMVar
  forM_ [1 .. 8] $ \k -> forkIO (putMVar results $! mix (value + k) 5000)
  parts <- replicateM 8 (takeMVar results)
  putStrLn (unwords (map show [step, value, sum parts, Map.size more]))
  threadDelay (pace * 1000)
  return (value, more)
